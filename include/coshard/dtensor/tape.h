#pragma once
// The tape: one record per operator that saw a tensor requiring a gradient. Belongs to the rank's
// thread. Records point to older records only, so a tape is freed with the last tensor that leads
// to it; backward (backward.h) walks it from the newest record to the oldest.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/backward.h>
#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

class Record;

// A hook of a tensor (hooks.h); without functions once it is removed. Who calls one keeps it: it
// may remove itself.
struct GradHook {
  template <class F>
  using Shared = std::shared_ptr<const std::function<F>>;
  int output = 0;  // which output of its producer the tensor is
  Shared<Tensor(const Tensor& gradient)> replace;
  Shared<void()> accumulated;
};
using GradHooks = std::vector<std::shared_ptr<GradHook>>;

// What a tensor knows of its gradient. A leaf has no producer.
struct GradMeta {
  GradMeta() = default;
  ~GradMeta();  // hands on its producer: a tape of any length is dropped without recursion
  GradMeta(const GradMeta&) = delete;
  GradMeta& operator=(const GradMeta&) = delete;

  bool requires_grad = false;
  std::shared_ptr<Record> producer;
  int output = 0;                    // which output of the producer
  Tensor gradient;                   // accumulated over backward calls
  std::shared_ptr<const Spec> spec;  // of the tensor itself; null for a plain one
  GradHooks hooks;                   // of a leaf
};

// Where a record hands over the gradients of its inputs.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual bool wants(int input) const = 0;
  virtual void give(int input, Tensor gradient) = 0;
  // A gradient that nobody on the critical path waits for (a leaf's): it is computed after the next
  // collective of the backward pass has been issued, and so runs under it.
  virtual void defer(int input, std::function<Tensor()> compute) = 0;
  // The gradient of any tensor that is older than the record.
  virtual void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) = 0;
};

class Record : public std::enable_shared_from_this<Record> {
 public:
  virtual ~Record() = default;
  virtual std::string_view name() const = 0;
  // Whether `backward` is itself recorded where the tape is on, so that gradients of gradients are
  // right. Without it they are refused.
  virtual bool records_backward() const { return false; }
  // Whether its output is the memory of its input without being a view of it (Tensor::base).
  virtual bool shares_memory() const { return false; }
  // output_grads: undefined where nothing arrived, at least one is defined.
  // On the cpu they have arrived.
  virtual void backward(std::span<const Tensor> output_grads, GradSink& sink) = 0;
  // For a backward that awaits: null, or a task that takes the place of backward().
  virtual Task<void> awaited_backward(std::vector<Tensor> /*output_grads*/, GradSink& /*sink*/) {
    return {};
  }
  // Lets go of what it saved (saved.h): backward came by. Whether there was anything.
  virtual bool release() { return false; }

  bool released = false;  // and there was something
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<GradMeta>> inputs;   // null where no gradient is wanted
  GradHooks hooks;                                 // of its outputs
  std::vector<std::weak_ptr<GradMeta>> retaining;  // outputs that want to see their gradient
  // Path of the module whose forward made it; null for none, and while nobody watches.
  std::shared_ptr<const std::string> module;
};

// Puts `record` on the tape as the producer of `outputs`, when taping is on and an input requires a
// gradient; returns whether it did. `inputs` are the tensors the gradients belong to.
bool taped(std::span<const Tensor> inputs);  // would a record be made for these?
void push_record(std::shared_ptr<Record> record, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs);
// From now on `tensor` is what `producer` made as its output number `output`.
void mark_output(const Tensor& tensor, std::shared_ptr<Record> producer, int output);
// The number of the newest record: those that are made from now on have larger ones.
std::uint64_t newest_record();

// Walks what lies behind `roots`, but no record up to `since`: gradients that get there go to
// `outer`, whose record it is that walks. For a backward that makes records of its own first.
Task<void> walk_within(std::vector<Tensor> roots, std::vector<Tensor> gradients,
                       std::uint64_t since, GradSink& outer);

// No records are made in this branch of the program while one lives.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool before_;
};
bool grad_enabled();
// Whether records are made in this branch, from now on (torch.set_grad_enabled).
void set_grad_enabled(bool on);

}  // namespace coshard
