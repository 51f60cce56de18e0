#include <coshard/dtensor/backward/backward.h>

#include <optional>
#include <utility>

#include <coshard/dtensor/backward/finite_guard.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/backward/backward_pass.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/tape/origin.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Tensor seed_of(std::string_view who, const Tensor& loss, Tensor gradient) {
  catch_up_with_writes({&loss, 1});
  CS_REQUIRE(loss.defined() && loss.requires_grad(), who, ": ", loss,
             " does not depend on a tensor that requires a gradient");
  if (const auto& producer = loss.grad_meta()->producer)
    require_finite(loss, "the loss, made by", producer->name(), producer->module);
  if (gradient.defined()) {
    CS_REQUIRE(
        gradient.shape() == loss.shape() && gradient.is_distributed() == loss.is_distributed(), who,
        ": gradient ", gradient, " does not match ", loss);
    return to(gradient, loss.dtype());
  }
  const bool nothing =
      !loss.is_distributed() && loss.local_shape() == Shape{0};  // outside the mesh
  CS_REQUIRE(loss.numel() == 1 || nothing, who, ": ", loss, " has ", loss.numel(),
             " elements; pass its gradient");
  const Tensor seed = loss.is_distributed() ? ones(loss.mesh(), partial_as_replicate(loss.layout()),
                                                   loss.shape(), loss.dtype())
                                            : ones(loss.device(), loss.shape(), loss.dtype());
  seed.set_origin(loss.origin());
  return seed;
}

// Turns the tape off while alive, unless create_graph is set.
struct QuietUnless {
  explicit QuietUnless(bool recorded) {
    if (!recorded) guard.emplace();
  }
  std::optional<NoGradGuard> guard;
};

// Tells the observers where backward begins and ends.
class BackwardScope {
 public:
  BackwardScope() : world_(World::current()) {
    if (world_ && world_->observed()) world_->observer().backward_enter();
  }
  ~BackwardScope() {
    if (world_ && world_->observed()) world_->observer().backward_exit();
  }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  World* world_;
};

Task<void> finish_walk(BackwardPass& walk) {
  walk.settle_arrivals();
  while (!walk.done()) {
    if (walk.has_products()) {
      Task<void> sum = walk.sum_products();
      co_await std::move(sum);
    }
    if (walk.about_to_wait()) {
      walk.run_deferred();
      walk.pause();
      Task<void> arrived = arrival_of(walk.awaited());
      co_await std::move(arrived);
    }
    Task<void> rest = walk.step();
    if (rest) co_await std::move(rest);
    walk.step_done();
  }
  while (walk.has_late_leaves()) {
    Task<void> arrived = arrival_of(walk.awaited_by_leaves());
    co_await std::move(arrived);
    walk.settle_leaves(false);
  }
  walk.end();
  if (std::vector<Tensor> awaited = walk.awaited_by_collectors(); !awaited.empty()) {
    Task<void> arrived = arrival_of(std::move(awaited));
    co_await std::move(arrived);
  }
  walk.settle();
}

void finish_walk_in_place(BackwardPass& walk, std::string_view who) {
  walk.stay_in_place();
  walk.settle_arrivals();
  while (!walk.done()) {
    if (walk.about_to_wait()) walk.run_deferred();
    CS_REQUIRE(!walk.step(), who, ": part of the graph awaits a collective; co_await ",
               who.substr(4), " instead");
    walk.step_done();
  }
  walk.settle_leaves(true);
  walk.end();
  for (const Tensor& awaited : walk.awaited_by_collectors()) awaited.wait(who);
  walk.settle();
}

void begin(BackwardPass& walk, std::string_view who, const std::vector<Tensor>& outputs,
           std::vector<Tensor> gradients) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor given = i < gradients.size() ? std::move(gradients[i]) : Tensor();
    Tensor seed = seed_of(who, outputs[i], std::move(given));
    walk.arrive(outputs[i].grad_meta(), std::move(seed));
  }
}

void require_inputs(std::string_view who, const std::vector<Tensor>& outputs,
                    const std::vector<Tensor>& inputs, const std::vector<Tensor>& gradients) {
  CS_REQUIRE(gradients.empty() || gradients.size() == outputs.size(), who, ": ", gradients.size(),
             " gradients for ", outputs.size(), " outputs");
  catch_up_with_writes(outputs);
  catch_up_with_writes(inputs);
  for (const Tensor& output : outputs)  // requires_grad() brings views up to date
    CS_REQUIRE(output.defined() && output.requires_grad(), who, ": ", output,
               " does not depend on a tensor that requires a gradient");
  for (const Tensor& input : inputs)
    CS_REQUIRE(input.defined() && input.requires_grad(), who, ": input ", input,
               " does not require a gradient");
  CS_REQUIRE(!inputs.empty(), who, ": the list of inputs is empty");
}

std::vector<Tensor> checked_result(BackwardPass& walk, std::string_view who,
                                   const std::vector<Tensor>& inputs, bool allow_unused) {
  std::vector<Tensor> result = walk.result();
  for (std::size_t i = 0; i < result.size() && !allow_unused; ++i)
    CS_REQUIRE(result[i].defined(), who, ": input ", i, ", ", inputs[i],
               ", was not used to compute the outputs; allow_unused permits that");
  return result;
}

}  // namespace

Task<void> backward(Tensor loss, Tensor gradient, BackwardOptions options, CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(options.create_graph);
  BackwardPass walk(options.retain_graph || options.create_graph);
  Tensor seed = seed_of("backward", loss, std::move(gradient));
  walk.set_loss_marks(loss.marks());
  walk.arrive(loss.grad_meta(), std::move(seed));
  walk.collect(loss.grad_meta());
  Task<void> rest = finish_walk(walk);
  co_await std::move(rest);
}

Task<void> backward(Tensor loss, BackwardOptions options, CallSite site) {
  return backward(std::move(loss), Tensor(), options, site);
}

void run_backward(const Tensor& loss, const Tensor& gradient, BackwardOptions options,
                  CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(options.create_graph);
  BackwardPass walk(options.retain_graph || options.create_graph);
  Tensor seed = seed_of("backward", loss, gradient);
  walk.set_loss_marks(loss.marks());
  walk.arrive(loss.grad_meta(), std::move(seed));
  walk.collect(loss.grad_meta());
  finish_walk_in_place(walk, "run_backward");
}

void run_backward(const Tensor& loss, BackwardOptions options, CallSite site) {
  run_backward(loss, Tensor(), options, site);
}

Task<std::vector<Tensor>> grad(Tensors outputs, Tensors inputs, Tensors gradients,
                               GradOptions options, CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(options.create_graph);
  require_inputs("grad", outputs, inputs, gradients);
  BackwardPass walk(options.retain_graph || options.create_graph, inputs, outputs);
  begin(walk, "grad", outputs, std::move(gradients));
  Task<void> rest = finish_walk(walk);
  co_await std::move(rest);
  co_return checked_result(walk, "grad", inputs, options.allow_unused);
}

std::vector<Tensor> run_grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& gradients, GradOptions options,
                             CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(options.create_graph);
  require_inputs("grad", outputs, inputs, gradients);
  BackwardPass walk(options.retain_graph || options.create_graph, inputs, outputs);
  begin(walk, "grad", outputs, gradients);
  finish_walk_in_place(walk, "run_grad");
  return checked_result(walk, "grad", inputs, options.allow_unused);
}

Task<void> walk_within(std::vector<Tensor> roots, std::vector<Tensor> gradients,
                       std::uint64_t since, GradSink& outer) {
  const NoGradGuard quiet;
  BackwardPass walk(since, outer);
  for (std::size_t i = 0; i < roots.size(); ++i)
    if (roots[i].defined() && roots[i].requires_grad() && gradients[i].defined())
      walk.arrive(roots[i].grad_meta(), std::move(gradients[i]));
  Task<void> rest = finish_walk(walk);
  co_await std::move(rest);
}

Task<void> Tensor::backward(CallSite site) const { return coshard::backward(*this, {}, {}, site); }
Task<void> Tensor::backward(Tensor gradient, CallSite site) const {
  return coshard::backward(*this, std::move(gradient), {}, site);
}

}  // namespace coshard
