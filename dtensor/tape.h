#pragma once
// The tape: one record per operator that saw a tensor requiring a gradient, and `backward`, which
// walks the records from the newest to the oldest. Belongs to the rank's thread. Records point to
// older records only, so a tape is freed with the last tensor that leads to it.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/tensor.h"
#include "runtime/coro/task.h"

namespace coshard {

class Record;

// What a tensor knows of its gradient. A leaf has no producer.
struct GradMeta {
  bool requires_grad = false;
  std::shared_ptr<Record> producer;
  int output = 0;                    // which output of the producer
  Tensor gradient;                   // of a leaf: accumulated over backward calls
  std::shared_ptr<const Spec> spec;  // of the tensor itself; null for a plain one
  std::uint32_t version = 0;         // of its storage when a record made it
};

// Where a record hands over the gradients of its inputs.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual bool wants(int input) const = 0;
  virtual void give(int input, Tensor gradient) = 0;
  // A gradient that nobody on the critical path waits for (a leaf's): it is computed after the next
  // collective of the backward pass has been issued, and so runs under it (architecture C7).
  virtual void defer(int input, std::function<Tensor()> compute) = 0;
};

class Record : public std::enable_shared_from_this<Record> {
 public:
  virtual ~Record() = default;
  virtual std::string_view name() const = 0;
  // Whether `backward` is itself recorded where the tape is on, so that gradients of gradients are
  // right. Without it they are refused.
  virtual bool records_backward() const { return false; }
  // output_grads: undefined where nothing arrived, at least one is defined.
  // On the cpu they have arrived.
  virtual void backward(std::span<const Tensor> output_grads, GradSink& sink) = 0;
  // For a backward that awaits: null, or a task that takes the place of backward().
  virtual Task<void> awaited_backward(std::vector<Tensor> /*output_grads*/, GradSink& /*sink*/) {
    return {};
  }

  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<GradMeta>> inputs;  // null where no gradient is wanted
  // Path of the module whose forward made it; null for none, and while nobody watches.
  std::shared_ptr<const std::string> module;
};

// Puts `record` on the tape as the producer of `outputs`, when taping is on and an input requires a
// gradient; returns whether it did. `inputs` are the tensors the gradients belong to.
bool taped(std::span<const Tensor> inputs);  // would a record be made for these?
// Error{BadInput} when an input's memory was changed in place through another tensor since.
void push_record(std::shared_ptr<Record> record, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs);
// From now on `tensor` is what `producer` made as its output number `output`.
void mark_output(const Tensor& tensor, std::shared_ptr<Record> producer, int output);
// From now on `x` stands for `result` on the tape: an in-place operator has written the one into
// the other.
void replace_on_tape(const Tensor& x, const Tensor& result);

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

// Gradients of `loss` with respect to every leaf behind it, added to the leaves' grad().
// `gradient`: the gradient of `loss` (same shape and, on a DTensor, any layout); default 1 for a
// tensor with one element. A leaf's gradient has the leaf's layout, or stays Partial where the sum
// is left to the optimizer. Input-gradient collectives are issued first, weight gradients computed
// under them. Error{BadInput}: no leaf behind it, or more than one element and no gradient. The
// tape is kept: a second call adds again. Collectives: those of the redistributes on the tape,
// mirrored, in reverse order. create_graph: gradients are recorded too, so that they can be
// differentiated in turn; a leaf and its gradient then keep each other alive until
// set_grad({}). An operator whose backward is one with no gradient of its own says so.
//   Resumes: suspends before each record whose gradients are in flight, so that siblings run under
//   the collectives; gradients that meet there are added in the order in which they arrived.
//   Gives: gradients that may still be in flight; co_await arrival_of({leaf.grad()}) awaits one.
//   Cancel: the leaves keep what has reached them by then.
Task<void> backward(Tensor loss, Tensor gradient = {}, bool create_graph = false,
                    CallSite site = CallSite::current());
// The same on the spot, outside a coroutine: waits in place. Error{BadInput} through what has to
// await (recomputation).
void run_backward(const Tensor& loss, const Tensor& gradient = {}, bool create_graph = false,
                  CallSite site = CallSite::current());

}  // namespace coshard
