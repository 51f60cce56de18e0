#include "dtensor/ops/local.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/random.h"
#include "kernels/run.h"

namespace coshard {

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options)
    : Optimizer(std::move(parameters)), options_(options), states_(parameters_.size()) {
  CS_REQUIRE(options.lr >= 0 && options.eps >= 0 && options.weight_decay >= 0, "AdamW: lr ",
             options.lr, ", eps ", options.eps, ", weight_decay ", options.weight_decay);
  for (const double beta : {options.beta1, options.beta2})
    CS_REQUIRE(beta >= 0 && beta < 1, "AdamW: beta ", beta, " is outside [0, 1)");
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
      if (options_.amsgrad) s.largest_v = zeros(p.device(), p.local_shape(), dtype);
      if (p.dtype() == DType::BF16) {
        s.master = Tensor::empty(p.device(), p.local_shape(), DType::F32);
        kernels::run(p.device()->kind(), kernels::Copy{view_of(s.master), view_of(p)});
      }
    }
    kernels::run(
        p.device()->kind(),
        kernels::AdamW{p.dtype(), p.local_numel(), p.data(), g.data(), s.m.data(), s.v.data(),
                       data_or_null(s.master), lr, options_.beta1, options_.beta2, options_.eps,
                       options_.weight_decay, options_.maximize ? -1.0 : 1.0, ++s.step,
                       data_or_null(s.largest_v)});
  }
}

}  // namespace coshard
