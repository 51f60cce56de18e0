#include <coshard/styles/recompute.h>

#include <algorithm>
#include <memory>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/nn/kv_cache.h>
#include "dtensor/redistribute/deferred.h"
#include "dtensor/tape/grad_mode.h"
#include "dtensor/tape/saved.h"
#include "runtime/coro/user_call.h"
#include "styles/shard_group.h"

namespace coshard {
namespace {

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

// The tensor that every slot holds outside forward.
std::vector<Tensor::Weak> slots_of(Module& module) {
  std::vector<Tensor::Weak> held;
  for (const NamedParameter& each : module.named_slots()) held.emplace_back(lasting(*each.slot));
  return held;
}

class RecomputeNode final : public GradNode {
 public:
  RecomputeNode(Module& module, Inputs inputs, std::unique_ptr<ReadLog> reads, RandomState before,
                RandomState after)
      : module_(module),
        inputs_(std::move(inputs)),
        reads_(std::move(reads)),
        slots_(slots_of(module)),
        sequences_(nn::sequences()),
        before_(before),
        after_(after) {
    for (Tensor* x : tensors_of(inputs_)) {
      saved_.emplace_back(*x);
      *x = Tensor();
    }
  }
  std::string_view name() const override { return "recompute"; }
  // Adds what else the first run read: gradients flow to it as to the inputs.
  void add_inputs(const std::vector<std::shared_ptr<GradMeta>>& read) {
    for (const auto& meta : read)
      if (std::ranges::find(inputs, meta) == inputs.end()) inputs.push_back(meta);
  }

  void backward(std::span<const Tensor>, GradSink&) override {}
  Task<void> awaited_backward(std::vector<Tensor> output_grads, GradSink& sink) override {
    return recompute_backward(std::move(output_grads), sink);
  }
  bool release() override {
    for (Saved& x : saved_) x.release();
    return true;
  }

 private:
  // The inputs, in their place on the tape.
  Inputs inputs_again() const {
    Inputs again = inputs_;
    std::vector<Tensor*> tensors = tensors_of(again);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& x = saved_[i].get(name());
      if (!x.defined()) continue;
      *tensors[i] = x.detach();
      tensors[i]->set_grad_meta(inputs[i]);
    }
    return again;
  }

  Task<void> recompute_backward(std::vector<Tensor> output_grads, GradSink& sink) {
    // The backward pass holds the node until its next step.
    const std::uint64_t since = newest_record();
    Task<Outputs> run = run_again();
    Outputs outputs = co_await std::move(run);
    Task<void> walk = walk_within(std::move(outputs), std::move(output_grads), since, sink);
    co_await std::move(walk);
  }

  void require_same_parameters() const {
    const std::vector<NamedParameter> now = module_.named_slots();
    for (std::size_t i = 0; i < now.size(); ++i)
      CS_REQUIRE(now.size() == slots_.size() && lasting(*now[i].slot).id() == slots_[i].lock().id(),
                 "recompute: ", module_.type_name(), " '", module_.path(), "': its parameter '",
                 now[i].name, "' was replaced since its forward");
  }

  // Runs the module with the tape on.
  Task<Outputs> run_again() const {
    const RecordGuard recording;
    const DeferRedistributes deferring;
    // For a part of a sharded module, which does not gather its parameters itself.
    std::vector<Tensor> arriving;
    std::shared_ptr<void> whole;
    if (const auto& state = module_.state(); state && &state->module() != &module_)
      whole = state->enter(arriving);
    if (!arriving.empty()) {
      Task<void> arrived = arrival_of(std::move(arriving));
      co_await std::move(arrived);
    }
    require_same_parameters();
    reads_->require_unchanged(
        str_cat("recompute: ", module_.type_name(), " '", module_.path(), "'"));
    const RandomStateGuard random(before_);
    const nn::SequenceScope scope(sequences_);
    Task<Outputs> again = module_.call_once(inputs_again());
    Outputs outputs = co_await std::move(again);
    CS_REQUIRE(random_state().next_stream == after_.next_stream, "recompute: ", module_.type_name(),
               " '", module_.path(), "' drew ", random_state().next_stream - before_.next_stream,
               " random streams in backward, but ", after_.next_stream - before_.next_stream,
               " in forward");
    co_return outputs;
  }

  Module& module_;
  Inputs inputs_;  // without its tensors
  std::vector<Saved> saved_;
  std::unique_ptr<ReadLog> reads_;
  std::vector<Tensor::Weak> slots_;
  std::shared_ptr<const nn::Sequences> sequences_;
  RandomState before_, after_;
};

// Outputs that the module created may be written to later; inputs and parameters may not.
void forget_outputs(ReadLog& reads, const Outputs& outputs, const std::vector<Tensor>& behind) {
  for (const Tensor& y : outputs) {
    const bool is_from_before = std::ranges::any_of(behind, [&](const Tensor& x) {
      return x.defined() && y.defined() && x.storage()->buffer == y.storage()->buffer;
    });
    if (y.defined() && !is_from_before) reads.forget(y);
  }
}

}  // namespace

Task<Outputs> recompute(Module& module, Inputs inputs, CallSite site) {
  const UserCall user(site);
  std::vector<Tensor> behind;  // where gradients may flow to: inputs, then parameters
  for (const Tensor* x : tensors_of(inputs)) behind.push_back(*x);
  for (const Tensor& parameter : module.parameters()) behind.push_back(parameter);
  const bool records = taped(behind);
  Inputs kept;
  if (records) kept = inputs;
  const RandomState before = random_state();
  std::unique_ptr<ReadLog> reads;
  if (records) reads = std::make_unique<ReadLog>();
  Task<Outputs> body = module.call_once(std::move(inputs));
  Outputs outputs = co_await std::move(body);
  if (!records) co_return outputs;
  reads->stop();
  forget_outputs(*reads, outputs, behind);
  CS_REQUIRE(!outputs.empty() && outputs.size() <= kMaxOutputs, "recompute: ", module.type_name(),
             " '", module.path(), "' returned ", outputs.size(), " outputs");
  // Frees the tape of this run: nothing refers to its outputs any more.
  for (Tensor& y : outputs)
    if (y.defined()) y = y.with_spec(y.spec());
  const std::vector<std::shared_ptr<GradMeta>> read = reads->wanted();
  auto record = std::make_shared<RecomputeNode>(module, std::move(kept), std::move(reads), before,
                                                random_state());
  push_record(record, behind, outputs);
  record->add_inputs(read);
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
