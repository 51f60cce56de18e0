#include "dtensor/optim/optimizer.h"

#include <unordered_set>

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/redistribute.h"
#include "dtensor/step_graph.h"
#include "runtime/coro/user_call.h"

namespace coshard {

Optimizer::Optimizer(std::vector<Tensor> parameters) {
  std::unordered_set<const void*> seen;
  for (Tensor& p : parameters) {
    CS_REQUIRE(p.defined() && p.is_leaf(), "optimizer: ", p, " is not a leaf");
    if (seen.insert(p.id()).second) parameters_.push_back(std::move(p));
  }
}

Task<void> Optimizer::step(CallSite site) {
  const UserCall user(site);
  Task<void> reduced = reduce_gradients(parameters_);
  co_await std::move(reduced);
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters_) gradients.push_back(p.grad());
  Task<void> arrived = arrival_of(std::move(gradients));
  co_await std::move(arrived);
  update();
}

void Optimizer::zero_grad() {
  for (const Tensor& p : parameters_) p.set_grad(Tensor());
}

Tensor Optimizer::gradient_of(const Tensor& parameter) {
  Tensor g = parameter.grad();
  if (!g.defined()) return g;
  if (const StepGraph* step = StepGraph::recording())
    step->require_met(parameter.grad_meta(), "optimizer");
  if (g.is_distributed() && !(g.layout() == parameter.layout()))
    g = redistribute_raw(g, parameter.layout());
  return local_contiguous(g);
}

}  // namespace coshard
