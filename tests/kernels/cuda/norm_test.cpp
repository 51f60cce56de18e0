#include "tests/kernels/cuda/compared.h"
#include "tests/kernels/cuda/norms.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaLayerNorm, MatchesTheReference) {
  each_norm([](DType dtype, const NormShape& s, bool affine) {
    const Data x = Data::normal(dtype, s.rows * s.dim, 1, 2);
    const Data w = Data::normal(dtype, s.dim, 2);
    const Data b = Data::normal(dtype, s.dim, 3);
    const Data y(dtype, s.rows * s.dim), mean(statistic(dtype), s.rows);
    const Data rstd(statistic(dtype), s.rows);
    expect_as_reference("layer norm" + s.text(), {&y, &mean, &rstd}, [&](auto at) {
      return LayerNorm{
          dtype, s.rows,   s.dim,   1e-5, at(x), affine ? at(w) : nullptr, affine ? at(b) : nullptr,
          at(y), at(mean), at(rstd)};
    });
  });
}

TEST(CudaRmsNorm, MatchesTheReference) {
  each_norm([](DType dtype, const NormShape& s, bool affine) {
    const Data x = Data::normal(dtype, s.rows * s.dim, 1, 2);
    const Data w = Data::normal(dtype, s.dim, 2);
    const Data y(dtype, s.rows * s.dim), rstd(statistic(dtype), s.rows);
    expect_as_reference("rms norm" + s.text(), {&y, &rstd}, [&](auto at) {
      return RmsNorm{dtype, s.rows, s.dim, 1e-5, at(x), affine ? at(w) : nullptr, at(y), at(rstd)};
    });
  });
}

}  // namespace
}  // namespace coshard::kernels
