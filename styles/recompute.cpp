#include "styles/recompute.h"

#include "dtensor/grad_mode.h"
#include "dtensor/ops/op.h"
#include "dtensor/random.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/tape.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// Catches the gradient that arrives at one input of the second run, in whatever layout it comes.
class InputGradient final : public Record {
 public:
  explicit InputGradient(std::shared_ptr<Tensor> gradient) : gradient_(std::move(gradient)) {}
  std::string_view name() const override { return "recompute_input"; }
  void backward(std::span<const Tensor> output_grads, GradSink&) override {
    *gradient_ = output_grads[0];
  }

 private:
  std::shared_ptr<Tensor> gradient_;
};

// Hands the outputs' gradients to the second run's tape, all in one walk.
class OutputGradients final : public Record {
 public:
  explicit OutputGradients(std::vector<Tensor> gradients) : gradients_(std::move(gradients)) {}
  std::string_view name() const override { return "recompute_outputs"; }
  void backward(std::span<const Tensor>, GradSink& sink) override {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      if (gradients_[i].defined() && sink.wants(static_cast<int>(i)))
        sink.give(static_cast<int>(i), gradients_[i]);
  }

 private:
  std::vector<Tensor> gradients_;
};

class RandomStateGuard {
 public:
  explicit RandomStateGuard(RandomState state) : before_(random_state()) {
    set_random_state(state);
  }
  ~RandomStateGuard() { set_random_state(before_); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  RandomState before_;
};

std::vector<Tensor*> tensors_of(Inputs& inputs) {
  std::vector<Tensor*> tensors;
  for (Tensor& x : inputs.args) tensors.push_back(&x);
  for (auto& named : inputs.kwargs) tensors.push_back(&named.second);
  return tensors;
}

class RecomputeRecord final : public Record {
 public:
  RecomputeRecord(Module& module, Inputs inputs, RandomState before, RandomState after)
      : module_(module), inputs_(std::move(inputs)), before_(before), after_(after) {
    for (Tensor* x : tensors_of(inputs_)) {
      wanted_.push_back(x->defined() && x->requires_grad());
      if (x->defined()) *x = x->detach();
    }
  }
  std::string_view name() const override { return "recompute"; }

  void backward(std::span<const Tensor>, GradSink&) override {}
  Task<void> awaited_backward(std::vector<Tensor> output_grads, GradSink& sink) override {
    return recompute_backward(std::move(output_grads), sink);
  }

 private:
  // The inputs, with a catch for the gradients of those that want one.
  Inputs caught_inputs(std::vector<std::shared_ptr<Tensor>>& gradients) const {
    Inputs inputs = inputs_;
    const std::vector<Tensor*> tensors = tensors_of(inputs);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      gradients.push_back(wanted_[i] ? std::make_shared<Tensor>() : nullptr);
      if (!wanted_[i]) continue;
      *tensors[i] = tensors[i]->detach();
      push_record(std::make_shared<InputGradient>(gradients[i]), {},
                  std::span<Tensor>(tensors[i], 1));
    }
    return inputs;
  }

  Task<void> recompute_backward(std::vector<Tensor> output_grads, GradSink& sink) {
    // The walk holds the record until its next step.
    std::vector<std::shared_ptr<Tensor>> gradients;
    Task<Tensor> run = run_again(std::move(output_grads), gradients);
    Tensor root = co_await std::move(run);
    Task<void> walk = coshard::backward(std::move(root));
    co_await std::move(walk);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] && sink.wants(static_cast<int>(i)))
        sink.give(static_cast<int>(i), *gradients[i]);
  }

  // Runs the module with the tape on; gives a scalar behind which all outputs lie.
  Task<Tensor> run_again(std::vector<Tensor> output_grads,
                         std::vector<std::shared_ptr<Tensor>>& gradients) const {
    const RecordGuard recording;
    const DeferRedistributes deferring;
    const RandomStateGuard random(before_);
    Task<Outputs> again = module_.call_once(caught_inputs(gradients));
    const Outputs outputs = co_await std::move(again);
    CS_REQUIRE(random_state().next_stream == after_.next_stream, "recompute: ", module_.type_name(),
               " '", module_.path(), "' took ", random_state().next_stream - before_.next_stream,
               " random streams, and ", after_.next_stream - before_.next_stream,
               " were taken while it ran forward");
    Tensor root = ones(World::current()->device(), Shape(), DType::F32);
    push_record(std::make_shared<OutputGradients>(std::move(output_grads)), outputs,
                std::span<Tensor>(&root, 1));
    co_return root;
  }

  Module& module_;
  Inputs inputs_;
  std::vector<bool> wanted_;
  RandomState before_, after_;
};

}  // namespace

Task<Outputs> recompute(Module& module, Inputs inputs, CallSite site) {
  const UserCall user(site);
  std::vector<Tensor> behind;  // what gradients may flow to: the inputs, then the parameters
  for (const Tensor* x : tensors_of(inputs)) behind.push_back(*x);
  for (const Tensor& parameter : module.parameters()) behind.push_back(parameter);
  const bool records = taped(behind);
  Inputs kept;
  if (records) kept = inputs;
  const RandomState before = random_state();
  Task<Outputs> body = module.call_once(std::move(inputs));
  Outputs outputs = co_await std::move(body);
  if (!records) co_return outputs;
  CS_REQUIRE(!outputs.empty() && outputs.size() <= kMaxOutputs, "recompute: ", module.type_name(),
             " '", module.path(), "' gave ", outputs.size(), " outputs");
  // The tape that the module made goes with the tensors that led to it.
  for (Tensor& y : outputs)
    if (y.defined()) y = y.detach();
  push_record(std::make_shared<RecomputeRecord>(module, std::move(kept), before, random_state()),
              behind, outputs);
  co_return outputs;
}

Task<Tensor> recompute(Module& module, Tensor x, CallSite site) {
  const UserCall user(site);
  Inputs inputs(std::move(x));
  Task<Outputs> body = recompute(module, std::move(inputs));
  Outputs outputs = co_await std::move(body);
  CS_REQUIRE(outputs.size() == 1, "recompute: ", module.type_name(), " '", module.path(), "' gave ",
             outputs.size(), " outputs; call it with Inputs");
  co_return std::move(outputs.front());
}

}  // namespace coshard
