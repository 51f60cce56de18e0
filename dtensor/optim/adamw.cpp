#include "dtensor/ops/local.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/random.h"
#include "kernels/run.h"

namespace coshard {

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options)
    : Optimizer(std::move(parameters)), options_(options), states_(parameters_.size()) {
  lr = options.lr;
}

void AdamW::update() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    const Tensor g = gradient_of(p);
    if (!g.defined()) continue;
    State& s = states_[i];
    if (s.step == 0) {
      const DType dtype = p.dtype() == DType::F64 ? DType::F64 : DType::F32;
      s.m = zeros(p.device(), p.local_shape(), dtype);
      s.v = zeros(p.device(), p.local_shape(), dtype);
      if (p.dtype() == DType::BF16) {
        s.master = Tensor::empty(p.device(), p.local_shape(), DType::F32);
        kernels::run(p.device()->kind(), kernels::Copy{view_of(s.master), view_of(p)});
      }
    }
    kernels::run(
        p.device()->kind(),
        kernels::AdamW{p.dtype(), p.local_numel(), p.data(), g.data(), s.m.data(), s.v.data(),
                       s.master.defined() ? s.master.data() : nullptr, lr, options_.beta1,
                       options_.beta2, options_.eps, options_.weight_decay, 1.0, ++s.step});
  }
}

}  // namespace coshard
