#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

struct Case {
  std::int64_t batch, heads, kv_heads, tq, tk, dim;
  bool causal;
};

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1, true},      {2, 4, 4, 17, 17, 32, true},    {1, 4, 2, 63, 63, 64, true},
    {1, 3, 1, 5, 100, 20, true},   {1, 2, 2, 100, 100, 32, false}, {1, 2, 2, 40, 33, 16, true},
    {2, 2, 1, 33, 70, 128, false}, {1, 1, 1, 1, 257, 8, true},     {0, 2, 2, 4, 4, 8, true},
    {1, 2, 2, 257, 257, 32, true},
};

// Outputs of forward and backward; heads lie inside [b, t, h*d] memory when `interleaved`.
template <class Run>
std::vector<Data> attend(DType dtype, const Case& c, bool interleaved, Run run) {
  const std::vector<int> order =
      interleaved ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
  const std::vector<std::int64_t> wide = {c.batch, c.heads, c.tq, c.dim};
  const std::vector<std::int64_t> narrow = {c.batch, c.kv_heads, c.tk, c.dim};
  const std::int64_t n = c.batch * c.heads * c.tq * c.dim;
  const std::int64_t m = c.batch * c.kv_heads * c.tk * c.dim;
  Data q = Data::normal(dtype, n, 1);
  Data k = Data::normal(dtype, m, 2);
  Data v = Data::normal(dtype, m, 3);
  Data dout = Data::normal(dtype, n, 4);
  std::vector<Data> out = {
      {dtype, n}, {statistic(dtype), c.batch * c.heads * c.tq}, {dtype, n}, {dtype, m}, {dtype, m}};
  const double scale = 1 / std::sqrt(double(c.dim));
  run(Attention{out[0].view(wide, order), q.view(wide, order), k.view(narrow, order),
                v.view(narrow, order), out[1].ptr(), scale, c.causal});
  run(AttentionGrad{out[2].view(wide, order), out[3].view(narrow, order),
                    out[4].view(narrow, order), dout.view(wide, order), out[0].view(wide, order),
                    q.view(wide, order), k.view(narrow, order), v.view(narrow, order), out[1].ptr(),
                    scale, c.causal});
  return out;
}

TEST(Attention, AndItsGradientsMatchTheReference) {
  for (DType dtype : kFloating) {
    for (const Case& c : kCases) {
      for (bool interleaved : {false, true}) {
        const auto got = attend(dtype, c, interleaved, [](const auto& args) { cpu::run(args); });
        const auto want =
            attend(dtype, c, interleaved, [](const auto& args) { reference::run(args); });
        for (int i = 0; i < 5; ++i) {
          expect_close(got[i], want[i], tolerance(dtype) * 5,
                       "attention " + std::to_string(i) + " tq " + std::to_string(c.tq));
        }
      }
    }
  }
}

TEST(Attention, GivesZeroToAQueryThatSeesNoKey) {
  const Case c{1, 1, 1, 5, 2, 4, true};
  const auto got = attend(DType::F32, c, false, [](const auto& args) { cpu::run(args); });
  for (int i = 0; i < 3 * 4; ++i) {
    EXPECT_EQ(got[0].get(i), 0);
    EXPECT_EQ(got[2].get(i), 0);
  }
  EXPECT_EQ(got[1].get(0), -INFINITY);
}

TEST(Attention, RepeatsItsBits) {
  const Case c{2, 4, 2, 100, 100, 32, true};
  const auto run = [](const auto& args) { cpu::run(args); };
  EXPECT_EQ(attend(DType::F32, c, true, run), attend(DType::F32, c, true, run));
}

}  // namespace
}  // namespace coshard::kernels
