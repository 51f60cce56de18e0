// Gradients of layer_norm and rms_norm.
#include "tests/kernels/cuda/compared.h"
#include "tests/kernels/cuda/norms.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaLayerNormGrad, MatchesTheReference) {
  each_norm([](DType dtype, const NormShape& s, bool affine) {
    const Data x = Data::normal(dtype, s.rows * s.dim, 1, 2);
    const Data dy = Data::normal(dtype, s.rows * s.dim, 2);
    const Data w = Data::normal(dtype, s.dim, 3);
    const Data mean = Data::normal(statistic(dtype), s.rows, 4, 0.1);
    const Data rstd = Data::filled(statistic(dtype), s.rows, 0.5);
    const Data dx(dtype, s.rows * s.dim), dw(dtype, s.dim), db(dtype, s.dim);
    const auto make = [&](auto at) {
      return LayerNormGrad{dtype,    s.rows,
                           s.dim,    at(dy),
                           at(x),    affine ? at(w) : nullptr,
                           at(mean), at(rstd),
                           at(dx),   affine ? at(dw) : nullptr,
                           at(db)};
    };
    expect_as_reference("layer norm gradient" + s.text(), {&dx, &dw, &db}, make, 5);
  });
}

TEST(CudaRmsNormGrad, MatchesTheReference) {
  each_norm([](DType dtype, const NormShape& s, bool affine) {
    const Data x = Data::normal(dtype, s.rows * s.dim, 1, 2);
    const Data dy = Data::normal(dtype, s.rows * s.dim, 2);
    const Data w = Data::normal(dtype, s.dim, 3);
    const Data rstd = Data::filled(statistic(dtype), s.rows, 0.5);
    const Data dx(dtype, s.rows * s.dim), dw(dtype, s.dim);
    const auto make = [&](auto at) {
      return RmsNormGrad{dtype,    s.rows, s.dim,
                         at(dy),   at(x),  affine ? at(w) : nullptr,
                         at(rstd), at(dx), affine ? at(dw) : nullptr};
    };
    expect_as_reference("rms norm gradient" + s.text(), {&dx, &dw}, make, 5);
  });
}

// The same bits whatever the order in which blocks and threads run.
TEST(CudaRmsNormGrad, GivesTheSameBitsInEveryRun) {
  const std::int64_t rows = 40, dim = 100;
  const Data x = Data::normal(DType::F32, rows * dim, 1);
  const Data rstd = Data::filled(DType::F32, rows, 0.5);
  const Data dx(DType::F32, rows * dim), dw(DType::F32, dim);
  const auto once = [&] {
    OnDevice on;
    on.run(RmsNormGrad{DType::F32, rows, dim, on.put(x), on.put(x), nullptr, on.put(rstd),
                       on.put(dx), on.put(dw)});
    return on.get(dw);
  };
  EXPECT_EQ(once(), once());
}

}  // namespace
}  // namespace coshard::kernels
