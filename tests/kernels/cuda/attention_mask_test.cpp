// Masks of attention.
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

const Case kMaskCases[] = {
    {1, 2, 1, 40, 66, 64, false, Mask::Bias},       {1, 2, 2, 35, 37, 96, true, Mask::Bias, 64},
    {2, 1, 1, 70, 33, 40, true, Mask::Keep},        {1, 1, 1, 33, 70, 128, false, Mask::Keep},
    {1, 1, 1, 40, 20, 192, true, Mask::Keep, 0, 3},
};

TEST(CudaAttention, OnTensorCoresTakesMasks) {
  for (const DType dtype : kShort)
    for (const Case& c : kMaskCases) expect_matches(dtype, c);
}

}  // namespace
}  // namespace coshard::kernels
