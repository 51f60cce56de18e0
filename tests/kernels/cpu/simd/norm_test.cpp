#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/simd/sets.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {{0, 5},  {1, 1},     {3, 17},
                                                                    {5, 64}, {300, 100}, {2, 1030}};

template <class F>
void each_case(F&& f) {
  for (DType dtype : kFloating) {
    for (const auto& [rows, dim] : kShapes) {
      for (bool affine : {true, false}) f(dtype, rows, dim, affine);
    }
  }
}

double sum_tolerance(DType dtype, std::int64_t rows) {
  return tolerance(dtype) * (1 + std::sqrt(double(rows)));
}

TEST(LayerNorm, AndItsGradientsMatchTheReference) {
  each_case([](DType dtype, std::int64_t rows, std::int64_t dim, bool affine) {
    const Data x = Data::normal(dtype, rows * dim, 1, 2);
    const Data dy = Data::normal(dtype, rows * dim, 2);
    const Data w = Data::normal(dtype, dim, 3);
    const Data b = Data::normal(dtype, dim, 4);
    const DType s = statistic(dtype);
    const auto go = [&](auto run) {
      std::vector<Data> out = {{dtype, rows * dim}, {s, rows},    {s, rows},
                               {dtype, rows * dim}, {dtype, dim}, {dtype, dim}};
      run(LayerNorm{dtype, rows, dim, 1e-5, x.ptr(), affine ? w.ptr() : nullptr,
                    affine ? b.ptr() : nullptr, out[0].ptr(), out[1].ptr(), out[2].ptr()});
      run(LayerNormGrad{dtype, rows, dim, dy.ptr(), x.ptr(), affine ? w.ptr() : nullptr,
                        out[1].ptr(), out[2].ptr(), out[3].ptr(), affine ? out[4].ptr() : nullptr,
                        affine ? out[5].ptr() : nullptr});
      return out;
    };
    const auto got = go([](const auto& args) { cpu::run(args); });
    const auto want = go([](const auto& args) { reference::run(args); });
    for (int i = 0; i < 3; ++i) expect_close(got[i], want[i], "layer norm " + std::to_string(i));
    for (int i = 3; i < 6; ++i) {
      expect_close(got[i], want[i], sum_tolerance(dtype, rows),
                   "layer norm gradient " + std::to_string(i));
    }
  });
}

TEST(LayerNorm, OfAPartOfARegisterHasItsVarianceWhateverDtypeTheMeanHas) {
  for (const SimdSet& set : kSets) {
    for (const auto& [dtype, base] : {std::pair{DType::BF16, 200}, {DType::F16, 2000}}) {
      Data x(dtype, 3);
      for (int i = 0; i < 3; ++i) x.set(i, base + i * (i + 1) / 2);  // the mean is base + 4 / 3
      Data y(dtype, 3), mean(DType::F32, 1), rstd(DType::F32, 1);
      set.narrow.run(
          LayerNorm{dtype, 1, 3, 0, x.ptr(), nullptr, nullptr, y.ptr(), mean.ptr(), rstd.ptr()});
      EXPECT_NEAR(rstd.get(0), std::sqrt(9.0 / 14), 1e-4) << set.name << dtype;
    }
  }
}

TEST(RmsNorm, AndItsGradientsMatchTheReference) {
  each_case([](DType dtype, std::int64_t rows, std::int64_t dim, bool affine) {
    const Data x = Data::normal(dtype, rows * dim, 1, 2);
    const Data dy = Data::normal(dtype, rows * dim, 2);
    const Data w = Data::normal(dtype, dim, 3);
    const auto go = [&](auto run) {
      std::vector<Data> out = {
          {dtype, rows * dim}, {statistic(dtype), rows}, {dtype, rows * dim}, {dtype, dim}};
      run(RmsNorm{dtype, rows, dim, 1e-5, x.ptr(), affine ? w.ptr() : nullptr, out[0].ptr(),
                  out[1].ptr()});
      run(RmsNormGrad{dtype, rows, dim, dy.ptr(), x.ptr(), affine ? w.ptr() : nullptr, out[1].ptr(),
                      out[2].ptr(), affine ? out[3].ptr() : nullptr});
      return out;
    };
    const auto got = go([](const auto& args) { cpu::run(args); });
    const auto want = go([](const auto& args) { reference::run(args); });
    for (int i = 0; i < 2; ++i) expect_close(got[i], want[i], "rms norm " + std::to_string(i));
    for (int i = 2; i < 4; ++i) {
      expect_close(got[i], want[i], sum_tolerance(dtype, rows),
                   "rms norm gradient " + std::to_string(i));
    }
  });
}

}  // namespace
}  // namespace coshard::kernels
