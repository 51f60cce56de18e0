#pragma once
// One tensor's update. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

// One tensor's update. AdamW: m, v and (for bf16) master are f32 (f64 for f64). step counts from 1.
// Decoupled decay (Loshchilov & Hutter).
struct AdamW {
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* m;
  void* v;
  void* master;
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  std::int64_t step;
};
// momentum may be null. First step: buffer = grad (PyTorch). L2 decay added to the gradient.
struct Sgd {
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* momentum;
  double lr, momentum_factor, weight_decay, grad_scale;
  bool first;
};

}  // namespace coshard::kernels
