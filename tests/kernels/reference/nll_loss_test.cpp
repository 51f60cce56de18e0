// The loss of log probabilities.
#include "kernels/reference/reference.h"
#include "tests/kernels/reference/rows.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(NllLoss, WeighsIgnoresAndSmooths) {
  const Data log_probs = scan_data({-1, -2, -3, -4, -5, -6});  // [2, 3]
  const Data target = scan_data({2, 0}, DType::I64);
  const Data weight = scan_data({1, 2, 4});
  Data loss(DType::F64, 2);
  Data count(DType::F64, 2);
  reference::run(NllLoss{DType::F64, 2, 3, 1, 0, 0, log_probs.ptr(), target.ptr(), weight.ptr(),
                         loss.ptr(), count.ptr()});
  EXPECT_EQ(row_of(loss), (Row{12, 0}));
  EXPECT_EQ(row_of(count), (Row{4, 0}));
  reference::run(NllLoss{DType::F64, 2, 3, 1, -100, 0.5, log_probs.ptr(), target.ptr(),
                         weight.ptr(), loss.ptr(), count.ptr()});
  EXPECT_NEAR(loss.get(0), 0.5 * 12 + 0.5 / 3 * (1 + 4 + 12), 1e-12);
  const Data wrong = scan_data({3, 0}, DType::I64);
  EXPECT_ANY_THROW(reference::run(NllLoss{DType::F64, 2, 3, 1, -100, 0, log_probs.ptr(),
                                          wrong.ptr(), nullptr, loss.ptr(), count.ptr()}));
}

}  // namespace
}  // namespace coshard::kernels
