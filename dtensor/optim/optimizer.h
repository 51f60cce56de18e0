#pragma once
// SGD and AdamW over tensors of any layout, and gradient-norm clipping. Gradients that are still
// Partial are summed in one bucketed all_reduce per mesh dimension and dtype. Belongs to the rank's
// thread.
#include <memory>
#include <string_view>
#include <vector>

#include "dtensor/tensor.h"
#include "runtime/coro/task.h"

namespace coshard {

// Brings every Partial gradient of `parameters` to its parameter's layout: one all_reduce for all
// that are Replicate (label "gradients"), whatever their number.
Task<void> reduce_gradients(std::vector<Tensor> parameters);

// Total 2-norm (p > 0) or largest magnitude (p = infinity) of the logical gradients, each element
// counted once; then gradients are multiplied by min(1, max_norm / (norm + 1e-6))
// (torch.nn.utils.clip_grad_norm_). Calls reduce_gradients first. One further all_reduce when
// anything is sharded. The norm is the same on every rank.
Task<double> clip_grad_norm(std::vector<Tensor> parameters, double max_norm, double p = 2);

class Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer() = default;
  // reduce_gradients, then one update of every parameter that has a gradient.
  Task<void> step();
  void zero_grad();
  const std::vector<Tensor>& parameters() const { return parameters_; }
  double lr = 0;  // may be changed between steps

 protected:
  virtual void update() = 0;
  // The gradient in its parameter's layout, row-major; undefined when there is none.
  static Tensor gradient_of(const Tensor& parameter);
  std::vector<Tensor> parameters_;
};

struct SgdOptions {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
};
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, SgdOptions options = {});

 private:
  void update() override;
  SgdOptions options_;
  std::vector<Tensor> momentum_;
};

// Decoupled weight decay (Loshchilov & Hutter); defaults are PyTorch's. bf16 parameters keep an f32
// master copy.
struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});

 private:
  void update() override;
  AdamWOptions options_;
  struct State {
    Tensor m, v, master;
    std::int64_t step = 0;
  };
  std::vector<State> states_;
};

}  // namespace coshard
