// The gradient of softmax.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfSoftmaxAreItsSlopes) {
  for (bool log : {false, true}) {
    Data x = Data::normal(kF64, 2 * 5 * 3, 1);
    const Data dy = Data::normal(kF64, 30, 2);
    Data y(kF64, 30);
    Data dx(kF64, 30);
    const auto forward = [&] { run(Softmax{kF64, log, 2, 5, 3, x.ptr(), y.ptr()}); };
    forward();
    run(SoftmaxGrad{kF64, log, 2, 5, 3, dy.ptr(), y.ptr(), dx.ptr()});
    expect_gradient(x, dx, dy, y, forward, "softmax");
  }
}

}  // namespace
}  // namespace coshard::kernels::reference
