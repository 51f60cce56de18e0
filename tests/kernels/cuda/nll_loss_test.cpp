// The loss of log probabilities.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/classes.h"
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaNllLoss, AndItsGradientMatchTheReference) {
  for (const DType dtype : kFloating) {
    for (const LinesShape& s :
         {LinesShape{0, 3, 1}, {7, 1, 1}, {40, 33, 1}, {3, 257, 5}, {2, 1000, 1}, {1, 31, 70}}) {
      const DType st = statistic(dtype);
      const Data x = Data::normal(dtype, s.count(), 1), w = Data::normal(dtype, s.extent, 2);
      const Data target = class_targets(s.lines(), s.extent),
                 dloss = Data::normal(st, s.lines(), 4);
      for (const double smoothing : {0.0, 0.2}) {
        for (const bool weighted : {false, true}) {
          const Data loss(st, s.lines()), count(st, s.lines()), dx(dtype, s.count());
          expect_as_reference("nll loss" + s.text(), {&loss, &count}, [&](auto at) {
            return NllLoss{dtype,    s.outer,       s.extent,
                           s.inner,  kIgnoredClass, smoothing,
                           at(x),    at(target),    weighted ? at(w) : nullptr,
                           at(loss), at(count)};
          });
          expect_as_reference("nll loss gradient" + s.text(), {&dx}, [&](auto at) {
            return NllLossGrad{dtype,     s.outer,       s.extent,
                               s.inner,   kIgnoredClass, smoothing,
                               at(dloss), at(target),    weighted ? at(w) : nullptr,
                               at(dx)};
          });
        }
      }
    }
  }
}

TEST(CudaNllLoss, LeavesATargetThatIsNoClassForTheHost) {
  Data target = class_targets(7, 5);
  target.set(6, -1);
  const Data x = Data::normal(DType::F32, 35, 1), loss(DType::F32, 7), count(DType::F32, 7);
  OnDevice on;
  on.run(NllLoss{DType::F32, 7, 5, 1, kIgnoredClass, 0, on.put(x), on.put(target), nullptr,
                 on.put(loss), on.put(count)});
  EXPECT_THROW(on.get(loss), Error);
}

}  // namespace
}  // namespace coshard::kernels
