// Gradients of layer_norm and rms_norm.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfLayerNormAreItsSlopes) {
  Data x = Data::normal(kF64, 4 * 7, 1, 2);
  Data w = Data::normal(kF64, 7, 2);
  Data b = Data::normal(kF64, 7, 3);
  const Data dy = Data::normal(kF64, 28, 4);
  Data y(kF64, 28);
  Data mean(kF64, 4);
  Data rstd(kF64, 4);
  Data dx(kF64, 28);
  Data dw(kF64, 7);
  Data db(kF64, 7);
  const auto forward = [&] {
    run(LayerNorm{kF64, 4, 7, 1e-5, x.ptr(), w.ptr(), b.ptr(), y.ptr(), mean.ptr(), rstd.ptr()});
  };
  forward();
  run(LayerNormGrad{kF64, 4, 7, dy.ptr(), x.ptr(), w.ptr(), mean.ptr(), rstd.ptr(), dx.ptr(),
                    dw.ptr(), db.ptr()});
  expect_gradient(x, dx, dy, y, forward, "x");
  expect_gradient(w, dw, dy, y, forward, "weight");
  expect_gradient(b, db, dy, y, forward, "bias");
}

TEST(Gradients, OfRmsNormAreItsSlopes) {
  Data x = Data::normal(kF64, 4 * 7, 1, 2);
  Data w = Data::normal(kF64, 7, 2);
  const Data dy = Data::normal(kF64, 28, 4);
  Data y(kF64, 28);
  Data rstd(kF64, 4);
  Data dx(kF64, 28);
  Data dw(kF64, 7);
  const auto forward = [&] {
    run(RmsNorm{kF64, 4, 7, 1e-5, x.ptr(), w.ptr(), y.ptr(), rstd.ptr()});
  };
  forward();
  run(RmsNormGrad{kF64, 4, 7, dy.ptr(), x.ptr(), w.ptr(), rstd.ptr(), dx.ptr(), dw.ptr()});
  expect_gradient(x, dx, dy, y, forward, "x");
  expect_gradient(w, dw, dy, y, forward, "weight");
}

}  // namespace
}  // namespace coshard::kernels::reference
