#pragma once
// Redistributions that a schedule has carried out. Rank's thread.
#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// `result`, on the tape as the redistribution of `source` to its layout.
Tensor redistributed(const Tensor& source, Tensor result);

}  // namespace coshard
