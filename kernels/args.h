#pragma once
// The arguments of each numeric kernel: plain pointers, shapes and strides; no tensors, no layouts.
// `kernels::run(device, args)` picks the back end (kernels/run.h). Strides count elements. Unless a
// field is a View, memory is contiguous and row-major. Unless limited otherwise, every
// floating-point dtype works; accumulation is in f32 for bf16, f16 and f32, in f64 for f64.
#include <concepts>

#include "kernels/args/index.h"
#include "kernels/args/matmul.h"
#include "kernels/args/nn.h"
#include "kernels/args/optimizer.h"
#include "kernels/args/pointwise.h"
#include "kernels/args/random.h"
#include "kernels/args/reduce.h"
#include "kernels/args/view.h"

// Every kernel, by the name of its struct. A back end defines `run` for each.
// clang-format off
#define COSHARD_KERNELS(X) \
  COSHARD_POINTWISE_KERNELS(X) COSHARD_INDEX_KERNELS(X) COSHARD_MATMUL_KERNELS(X) \
  COSHARD_REDUCE_KERNELS(X) COSHARD_NN_KERNELS(X) COSHARD_RANDOM_KERNELS(X) \
  COSHARD_OPTIMIZER_KERNELS(X)
// clang-format on

namespace coshard::kernels {

// One whose struct tells how many bytes it reads and writes: `simulate` needs no more to know its
// time (otherwise: sim/kernel_work.cpp).
template <class Kernel>
concept TellsBytes = requires(const Kernel& kernel) {
  { kernel.bytes() } -> std::convertible_to<double>;
  { kernel.dtype } -> std::convertible_to<DType>;
};

}  // namespace coshard::kernels
