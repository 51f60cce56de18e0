// Gradients of attention, without tensor cores.
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaAttention, AndItsGradientsMatchTheReferenceForEveryDType) {
  const Case cases[] = {
      {1, 1, 1, 1, 1, 1, true},
      {2, 4, 2, 17, 17, 32, true},
      {1, 3, 1, 5, 100, 20, true, Mask::None, 0, kSquare, true},
      {1, 2, 2, 65, 40, 48, false},
      {1, 2, 1, 40, 33, 16, true, Mask::None, 24, kSquare, true},
      {2, 2, 1, 33, 37, 16, false, Mask::Bias},
      {2, 2, 2, 35, 35, 8, true, Mask::Bias, 12},
      {1, 2, 1, 40, 37, 16, false, Mask::Keep, 0, kSquare, true},
      {1, 1, 1, 9, 20, 100, true},
      {1, 2, 1, 20, 19, 200, true, Mask::None, 256},
      {1, 1, 1, 30, 20, 8, true, Mask::None, 0, 3},
      {1, 1, 1, 30, 20, 8, true, Mask::None, 0, -7},
      {0, 2, 2, 4, 4, 8, true},
      {2, 2, 1, 70, 45, 20, false, Mask::None, 0, kSquare, false, 0.125, 0, true},
      {1, 2, 2, 40, 70, 8, false, Mask::Bias, 0, kSquare, false, 0.125, 0, true},
      {1, 2, 2, 0, 4, 8, true},
      {1, 2, 2, 4, 0, 8, false},
  };
  for (const DType dtype : kFloating)
    for (const Case& c : cases) expect_matches(dtype, c);
}

TEST(CudaAttention, RepeatsItsBits) {
  const Case c{1, 4, 2, 50, 70, 32, true};
  for (const DType dtype : kFloating) EXPECT_EQ(on_device(dtype, c), on_device(dtype, c));
  const Case wide{1, 4, 2, 70, 130, 64, true};
  const Case few{1, 4, 2, 1, 600, 64, true};
  for (const Case& of : {wide, few})
    EXPECT_EQ(on_device(DType::BF16, of), on_device(DType::BF16, of));
}

}  // namespace
}  // namespace coshard::kernels
