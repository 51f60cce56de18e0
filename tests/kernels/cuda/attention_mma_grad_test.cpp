// Attention and its gradients on tensor cores.
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

// Of the short floats, which tensor cores compute: tiles that are full, cut and padded.
const Case kTensorCoreCases[] = {
    {1, 1, 1, 16, 8, 64},
    {1, 2, 1, 130, 130, 64, true},
    {2, 2, 2, 65, 70, 64, false, Mask::None, 0, kSquare, true},
    {1, 2, 1, 64, 64, 128, true},
    {1, 3, 1, 70, 130, 128, true, Mask::None, 0, kSquare, true},
    {1, 2, 1, 150, 40, 64, true},  // most queries see nothing
    {1, 1, 1, 70, 70, 64, true, Mask::None, 0, 9},
    {1, 1, 1, 1, 1, 128, true},
    {1, 2, 2, 0, 4, 64, true},
    {1, 2, 2, 70, 0, 128, false},
};

TEST(CudaAttention, OnTensorCoresMatchesTheReference) {
  for (const DType dtype : kShort)
    for (const Case& c : kTensorCoreCases) expect_matches(dtype, c);
}

}  // namespace
}  // namespace coshard::kernels
