#include <coshard/dtensor/optim/optimizer.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/local.h"
#include "dtensor/optim/gradients.h"
#include "kernels/run.h"

namespace coshard {

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options)
    : Optimizer(std::move(parameters)), options_(options), momentum_(parameters_.size()) {
  CS_REQUIRE(options.lr >= 0 && options.momentum >= 0 && options.weight_decay >= 0, "SGD: lr ",
             options.lr, ", momentum ", options.momentum, ", weight_decay ", options.weight_decay,
             ": must not be negative");
  CS_REQUIRE(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "SGD: nesterov needs momentum > 0 and dampening 0, got ", options.momentum, " and ",
             options.dampening);
  lr = options.lr;
}

std::vector<Optimizer::Moment> SGD::moments(std::size_t i) const {
  if (!momentum_[i].defined()) return {};
  return {{"momentum", as_parameter(momentum_[i], parameters_[i])}};
}

void SGD::start(std::size_t i, std::int64_t steps) {
  const Tensor& p = parameters_[i];
  if (steps == 0 || options_.momentum == 0) {
    if (momentum_[i].defined()) state_is_lost();
    momentum_[i] = Tensor();
    return;
  }
  if (momentum_[i].defined()) return;  // in place, where captured steps read it
  require_not_recording(*p.device(), "SGD", "allocate the momentum of a parameter");
  momentum_[i] = Tensor::empty(p.device(), p.local_shape(), p.dtype());
}

void SGD::update() {
  const double* rate = nullptr;
  if (StepGraph* step = StepGraph::recording())
    rate =
        step->numbers(std::array{lr}, [this, alive = std::weak_ptr(alive_)](std::span<double> now) {
          require_alive(alive, "SGD");
          now[0] = lr;
        });
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    const Tensor g = gradient_of(p);
    if (!g.defined()) continue;
    p.wait_for_readers("SGD");
    const bool first = !momentum_[i].defined();
    if (first && options_.momentum != 0) {
      require_not_recording(*p.device(), "SGD", "allocate the momentum of a parameter");
      momentum_[i] = Tensor::empty(p.device(), p.local_shape(), p.dtype());
    }
    void* momentum = momentum_[i].defined() ? momentum_[i].address() : nullptr;
    const Tensor updated = rows_to_update(p, "SGD");
    kernels::run(*p.device(), kernels::Sgd{p.dtype(), p.local_numel(), updated.data(),
                                           g.const_data(), momentum, lr, options_.momentum,
                                           options_.weight_decay, options_.maximize ? -1.0 : 1.0,
                                           first, options_.dampening, options_.nesterov, rate});
    if (updated.id() != p.id())
      kernels::run(*p.device(), kernels::Copy{view_of(p), view_of(updated)});
    p.mark_written();
  }
}

}  // namespace coshard
