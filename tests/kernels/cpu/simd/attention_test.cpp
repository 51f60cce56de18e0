#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

enum class Mask { None, Bias, Keep };

struct Case {
  std::int64_t batch, heads, kv_heads, tq, tk, dim;
  bool causal;
  Mask mask = Mask::None;
  std::int64_t value_dim = 0;  // 0: dim
  std::int64_t diagonal() const { return tk - tq; }
};

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1, true},
    {2, 4, 4, 17, 17, 32, true},
    {1, 4, 2, 63, 63, 64, true},
    {1, 3, 1, 5, 100, 20, true},
    {1, 2, 2, 100, 100, 32, false},
    {1, 2, 2, 40, 33, 16, true},
    {2, 2, 1, 33, 70, 128, false},
    {1, 1, 1, 1, 257, 8, true},
    {0, 2, 2, 4, 4, 8, true},
    {1, 2, 2, 257, 257, 32, true},
    {2, 4, 2, 33, 40, 16, false, Mask::Bias},
    {2, 2, 2, 35, 35, 8, true, Mask::Bias},
    {1, 2, 1, 40, 37, 16, false, Mask::Keep},
    {1, 2, 1, 5, 7, 4, false, Mask::Bias, 6},
};

// One for all heads; the first query of each batch sees nothing.
Data mask_of(const Case& c, DType dtype) {
  const std::int64_t n = c.batch * c.tq * c.tk;
  Data mask =
      c.mask == Mask::Keep ? Data::integers(DType::Bool, n, 5, 0, 1) : Data::normal(dtype, n, 5);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t j = 0; j < c.tk; ++j)
      mask.set(b * c.tq * c.tk + j, c.mask == Mask::Keep ? 0 : -INFINITY);
  return mask;
}

// Outputs of forward and backward; heads lie inside [b, t, h*d] memory when `interleaved`.
template <class Run>
std::vector<Data> attend(DType dtype, const Case& c, bool interleaved, Run run) {
  const std::vector<int> order =
      interleaved ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
  const std::vector<std::int64_t> wide = {c.batch, c.heads, c.tq, c.dim};
  const std::vector<std::int64_t> narrow = {c.batch, c.kv_heads, c.tk, c.dim};
  const std::int64_t value_dim = c.value_dim ? c.value_dim : c.dim;
  const std::vector<std::int64_t> result = {c.batch, c.heads, c.tq, value_dim};
  const std::vector<std::int64_t> values = {c.batch, c.kv_heads, c.tk, value_dim};
  const std::vector<std::int64_t> scores = {c.batch, c.heads, c.tq, c.tk};
  const std::int64_t rows = c.batch * c.heads * c.tq;
  const std::int64_t keys = c.batch * c.kv_heads * c.tk;
  Data q = Data::normal(dtype, rows * c.dim, 1);
  Data k = Data::normal(dtype, keys * c.dim, 2);
  Data v = Data::normal(dtype, keys * value_dim, 3);
  Data dout = Data::normal(dtype, rows * value_dim, 4);
  Data bias = mask_of(c, dtype);
  std::vector<Data> out = {{dtype, rows * value_dim}, {statistic(dtype), rows},
                           {dtype, rows * c.dim},     {dtype, keys * c.dim},
                           {dtype, keys * value_dim}, {dtype, rows * c.tk}};
  const double scale = 1 / std::sqrt(double(c.dim));
  View mask{};
  View dmask{};
  if (c.mask != Mask::None) {
    mask = bias.view({c.batch, 1, c.tq, c.tk});
    mask.shape[1] = c.heads;
    mask.strides[1] = 0;
    dmask = out[5].view(scores);
  }
  run(Attention{out[0].view(result, order), q.view(wide, order), k.view(narrow, order),
                v.view(values, order), out[1].ptr(), scale, c.causal, c.diagonal(), mask});
  run(AttentionGrad{out[2].view(wide, order), out[3].view(narrow, order),
                    out[4].view(values, order), dout.view(result, order),
                    out[0].view(result, order), q.view(wide, order), k.view(narrow, order),
                    v.view(values, order), out[1].ptr(), scale, c.causal, c.diagonal(), mask,
                    dmask});
  return out;
}

TEST(Attention, AndItsGradientsMatchTheReference) {
  constexpr bool kBoth[] = {false, true};
  for (const auto& [dtype, c, interleaved] :
       ranges::views::cartesian_product(kFloating, kCases, kBoth)) {
    const auto got = attend(dtype, c, interleaved, [](const auto& args) { cpu::run(args); });
    const auto want = attend(dtype, c, interleaved, [](const auto& args) { reference::run(args); });
    for (int i = 0; i < 6; ++i) {
      expect_close(got[i], want[i], tolerance(dtype) * 5,
                   "attention " + std::to_string(i) + " tq " + std::to_string(c.tq));
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
  const Case masked{1, 1, 1, 5, 2, 4, false, Mask::Keep};
  const auto blind = attend(DType::F32, masked, false, [](const auto& args) { cpu::run(args); });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(blind[0].get(i), 0);
    EXPECT_EQ(blind[2].get(i), 0);
  }
}

TEST(Attention, RepeatsItsBits) {
  const Case c{2, 4, 2, 100, 100, 32, true};
  const auto run = [](const auto& args) { cpu::run(args); };
  EXPECT_EQ(attend(DType::F32, c, true, run), attend(DType::F32, c, true, run));
}

}  // namespace
}  // namespace coshard::kernels
