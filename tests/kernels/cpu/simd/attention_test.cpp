#include <range/v3/view/cartesian_product.hpp>

#include <random>

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
  std::int64_t window = 0;
  bool ranges = false;
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
    {1, 2, 1, 7, 7, 4, true, Mask::None, 0, 1},
    {2, 4, 2, 100, 100, 32, true, Mask::None, 0, 17},
    {1, 2, 2, 257, 257, 20, true, Mask::None, 0, 64},
    {1, 2, 1, 33, 170, 16, true, Mask::None, 0, 40},
    {1, 1, 1, 90, 40, 8, true, Mask::None, 0, 9},
    {1, 2, 2, 40, 40, 8, true, Mask::None, 0, 1000},
    {2, 2, 1, 70, 75, 8, true, Mask::Bias, 0, 20},
    {1, 2, 1, 66, 71, 8, true, Mask::Bias, 6, 20},
    {1, 2, 1, 130, 130, 8, true, Mask::Keep, 0, 50},
    {2, 4, 2, 1, 70, 16, false, Mask::None, 0, 0, true},
    {3, 2, 1, 100, 90, 20, false, Mask::None, 0, 0, true},
    {2, 2, 2, 40, 40, 8, false, Mask::Bias, 0, 0, true},
    {2, 2, 2, 9, 7, 4, false, Mask::None, 6, 0, true},
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

// The first and last key of each query; some see none, some ranges reach beyond the keys.
Data range_of(const Case& c, bool last) {
  return Data::integers(DType::I64, c.batch * c.tq, last ? 7 : 6, last ? c.tk / 3 : -3, c.tk + 2);
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
  Data first = range_of(c, false), last = range_of(c, true);
  const View from = c.ranges ? first.view({c.batch, c.tq}) : View{};
  const View to = c.ranges ? last.view({c.batch, c.tq}) : View{};
  run(Attention{out[0].view(result, order), q.view(wide, order), k.view(narrow, order),
                v.view(values, order), out[1].ptr(), scale, c.causal, c.diagonal(), mask, c.window,
                from, to});
  run(AttentionGrad{out[2].view(wide, order), out[3].view(narrow, order),
                    out[4].view(values, order), dout.view(result, order),
                    out[0].view(result, order), q.view(wide, order), k.view(narrow, order),
                    v.view(values, order), out[1].ptr(), scale, c.causal, c.diagonal(), mask, dmask,
                    c.window, from, to});
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

// A window is the mask that it describes.
TEST(Attention, AWindowIsAMask) {
  const std::int64_t tq = 37, tk = 50, window = 11;
  Data q = Data::normal(DType::F64, tq * 4, 1), k = Data::normal(DType::F64, tk * 4, 2);
  Data keep(DType::Bool, tq * tk);
  for (std::int64_t i = 0; i < tq; ++i)
    for (std::int64_t j = 0; j < tk; ++j)
      keep.set(i * tk + j, j <= i + tk - tq && j > i + tk - tq - window ? 1 : 0);
  Data got(DType::F64, tq * 4), want(DType::F64, tq * 4), lse(DType::F64, tq);
  const std::vector<std::int64_t> rows = {1, 1, tq, 4}, keys = {1, 1, tk, 4};
  reference::run(Attention{want.view(rows), q.view(rows), k.view(keys), k.view(keys), lse.ptr(),
                           0.5, false, 0, keep.view({1, 1, tq, tk})});
  for (const bool vectorised : {false, true}) {
    const Attention windowed{got.view(rows), q.view(rows), k.view(keys), k.view(keys),
                             lse.ptr(),      0.5,          true,         tk - tq,
                             View{},         window};
    vectorised ? cpu::run(windowed) : reference::run(windowed);
    expect_close(got, want, "window");
  }
}

TEST(Attention, RangesOfKeysAreAMask) {
  const Case c{2, 1, 1, 37, 50, 4, false};
  Data q = Data::normal(DType::F64, 2 * c.tq * 4, 1), k = Data::normal(DType::F64, 2 * c.tk * 4, 2);
  Data first = range_of(c, false), last = range_of(c, true), keep(DType::Bool, 2 * c.tq * c.tk);
  for (std::int64_t row = 0; row < 2 * c.tq; ++row)
    for (std::int64_t j = 0; j < c.tk; ++j)
      keep.set(row * c.tk + j, double(j) >= first.get(row) && double(j) <= last.get(row) ? 1 : 0);
  Data got(DType::F64, 2 * c.tq * 4), want(DType::F64, 2 * c.tq * 4), lse(DType::F64, 2 * c.tq);
  const std::vector<std::int64_t> rows = {2, 1, c.tq, 4}, keys = {2, 1, c.tk, 4};
  reference::run(Attention{want.view(rows), q.view(rows), k.view(keys), k.view(keys), lse.ptr(),
                           0.5, false, 0, keep.view({2, 1, c.tq, c.tk})});
  for (const bool vectorised : {false, true}) {
    const Attention ranged{got.view(rows),
                           q.view(rows),
                           k.view(keys),
                           k.view(keys),
                           lse.ptr(),
                           0.5,
                           false,
                           0,
                           View{},
                           0,
                           first.view({2, c.tq}),
                           last.view({2, c.tq})};
    vectorised ? cpu::run(ranged) : reference::run(ranged);
    expect_close(got, want, "ranges");
  }
}

TEST(Attention, OfRandomWindowsMatchesTheReference) {
  std::mt19937 draw(7);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(draw);
  };
  for (int i = 0; i < 60; ++i) {
    const std::int64_t group = up_to(3), kv_heads = up_to(2);
    const Case c{up_to(2),   group * kv_heads, kv_heads, up_to(120),
                 up_to(120), up_to(24),        true,     static_cast<Mask>(up_to(3) - 1),
                 0,          up_to(130)};
    const auto got = attend(DType::F32, c, i % 2 == 0, [](const auto& args) { cpu::run(args); });
    const auto want =
        attend(DType::F32, c, i % 2 == 0, [](const auto& args) { reference::run(args); });
    for (int part = 0; part < 6; ++part)
      expect_close(got[part], want[part], tolerance(DType::F32) * 5,
                   "draw " + std::to_string(i) + " result " + std::to_string(part));
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
