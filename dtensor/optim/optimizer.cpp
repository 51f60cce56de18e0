#include <coshard/dtensor/optim/optimizer.h>

#include <unordered_set>

#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/trace_range.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/local.h"
#include "dtensor/optim/gradients.h"
#include "dtensor/optim/unsummed.h"
#include "dtensor/redistribute/execute.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// Whether several elements of it are one in memory.
bool is_expanded(const Tensor& x) {
  for (std::size_t d = 0; d < x.local_shape().size(); ++d)
    if (x.local_shape()[d] > 1 && x.strides()[d] == 0) return true;
  return false;
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters) {
  CS_REQUIRE(!parameters.empty(),
             "optimizer: the list of parameters is empty; a module returns those it registered");
  std::unordered_set<const void*> seen;
  for (Tensor& p : parameters) {
    CS_REQUIRE(p.defined() && p.is_leaf(), "optimizer: ", p, " is not a leaf");
    CS_REQUIRE(!is_expanded(p), "optimizer: ", p,
               " is expanded, so that a step would change its elements several times; expand it in "
               "forward, or give a clone()");
    if (seen.insert(p.id()).second) parameters_.push_back(std::move(p));
  }
}

namespace {

// All gradients, named. Replicate ones are used without a reduction, so they must be replicas.
std::vector<NamedTensor> unreduced_gradients(const std::vector<Tensor>& parameters) {
  std::vector<NamedTensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (const Tensor g = parameters[i].grad(); g.defined())
      gradients.push_back(
          {str_cat("the gradient of ", name_of_parameter(parameters[i], i), " of the optimizer,"),
           g});
  return gradients;
}

}  // namespace

void Optimizer::require_alive(const std::weak_ptr<const char>& alive, const char* who) {
  CS_REQUIRE(!alive.expired(), who,
             ": the optimizer of a captured step was destroyed, or begins anew; capture the step "
             "again");
}

void Optimizer::require_current() const {
  for (const Tensor& p : parameters_)
    CS_REQUIRE(p.is_leaf(), "optimizer: ", p, " was replaced in its module by ",
               p.grad_meta()->producer->name(), "; create the optimizer afterwards");
}

// Peers must lack the same gradients; the next collective of the mesh compares. Otherwise a replica
// that is not updated would silently diverge.
void Optimizer::note_missing_gradients() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    if (p.grad().defined() || !p.is_distributed() || !p.mesh().contains_this_rank()) continue;
    for (int m = 0; m < p.mesh().ndim(); ++m)
      p.mesh().note(m, without_gradient("stepped an optimizer", p, i, parameters_.size()));
  }
}

bool Optimizer::checks_replicas() {
  ++steps_;
  return check_replicas > 0 && StepGraph::recording() == nullptr &&
         (steps_ <= 2 || steps_ % check_replicas == 0);
}

Task<void> Optimizer::step(CallSite site) {
  const UserCall user(site);
  const TraceRange range(name());
  require_current();
  note_missing_gradients();
  const bool checks = checks_replicas();
  if (checks) {
    Task<void> verified = verify_replicas(unreduced_gradients(parameters_));
    co_await std::move(verified);
  }
  Task<void> reduced = reduce_gradients(parameters_);
  co_await std::move(reduced);
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters_) gradients.push_back(p.grad());
  Task<void> arrived = arrival_of(std::move(gradients));
  co_await std::move(arrived);
  if (check_replicas > 0) compare_gradients(parameters_, checks);
  update_and_tell();
}

void Optimizer::update_and_tell() {
  World* world = World::current();
  if (world == nullptr || !world->observed()) return update();
  const Computing told(world->observer(), *world->device(), name(), ComputeClass::Other, [this] {
    std::int64_t elements = 0;
    for (const Tensor& p : parameters_) elements += p.local_numel();
    return str_cat(parameters_.size(), " parameters, ", elements, " elements");
  });
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
