// The gradient of cross entropy.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

// The loss that the pieces make on one rank: max + log(sum) - (1-s) picked - s/classes total, times
// scale.
TEST(Gradients, OfCrossEntropyAreItsSlopes) {
  for (double smoothing : {0.0, 0.2}) {
    Data logits = Data::normal(kF64, 3 * 6, 1);
    Data target = Data::integers(DType::I64, 3, 2, 0, 5);
    target.set(1, -100);
    const Data scale = Data::normal(kF64, 3, 3);
    Data max(kF64, 3);
    Data sum(kF64, 3);
    Data picked(kF64, 3);
    Data total(kF64, 3);
    Data loss(kF64, 3);
    Data dlogits(kF64, 18);
    const auto forward = [&] {
      run(CrossEntropyStats{kF64, 3, 6, 0, -100, logits.ptr(), target.ptr(), max.ptr(), sum.ptr(),
                            picked.ptr(), total.ptr()});
      for (int r = 0; r < 3; ++r) {
        const double value = max.get(r) + std::log(sum.get(r)) - (1 - smoothing) * picked.get(r) -
                             smoothing / 6 * total.get(r);
        loss.set(r, target.get(r) == -100 ? 0 : value);
      }
    };
    forward();
    run(CrossEntropyGrad{kF64, 3, 6, 0, -100, smoothing, 6, logits.ptr(), target.ptr(), max.ptr(),
                         sum.ptr(), scale.ptr(), dlogits.ptr()});
    expect_gradient(logits, dlogits, scale, loss, forward, "logits");
  }
}

}  // namespace
}  // namespace coshard::kernels::reference
