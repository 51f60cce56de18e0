#pragma once
// Parameter updates. See kernels/args.h.
#include <array>
#include <cmath>
#include <span>

#include "kernels/args/view.h"

namespace coshard::kernels {

// Updates of many tensors of one dtype at once. m, v and (for bf16) master are f32 (f64 for f64);
// master may be null. step counts from 1. Decoupled weight decay (Loshchilov & Hutter).
struct AdamWTensor {
  std::int64_t count;
  void* param;
  const void* grad;
  void* m;
  void* v;
  void* master;
  void* largest_v = nullptr;  // AMSGrad (Reddi et al., 2018): the running maximum of v
};
struct AdamW {
  DType dtype;
  std::span<const AdamWTensor> tensors;  // read during the call
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  std::int64_t step;
  // On a device, in a recorded step: where the kernel reads adamw_rates(), instead of using lr and
  // step. Null: lr and step are used.
  const double* rates = nullptr;
};
// The step-dependent factors: the step size, the factor of the second moment's root, the decay.
inline std::array<double, 3> adamw_rates(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  return {args.lr / (1 - std::pow(args.beta1, step)), 1 / std::sqrt(1 - std::pow(args.beta2, step)),
          args.lr * args.weight_decay};
}
// momentum may be null. First step: buffer = grad (PyTorch), then buffer = factor * buffer +
// (1 - dampening) * grad. nesterov: the step is grad + factor * buffer. L2 decay added to the
// gradient.
struct Sgd {
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* momentum;
  double lr, momentum_factor, weight_decay, grad_scale;
  bool first;
  double dampening = 0;
  bool nesterov = false;
  const double* rate = nullptr;  // on a device, in a recorded step: where the kernel reads lr
};

// clang-format off
#define COSHARD_OPTIMIZER_KERNELS(X) \
  X(AdamW) X(Sgd)
// clang-format on

}  // namespace coshard::kernels
