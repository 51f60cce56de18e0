#pragma once
// The tape: one record per operator that read a tensor requiring a gradient. Used on the rank's
// thread. Records point only to older records, so a tape is freed with the last tensor that leads
// to it; backward (backward.h) visits records from newest to oldest.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/tape/overlap.h>
#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

class GradCollector;
class GradNode;

// A tensor's hook (hooks.h); its functions are empty once it is removed. Callers keep it alive: a
// hook may remove itself.
struct GradHook {
  template <class F>
  using Shared = std::shared_ptr<const std::function<F>>;
  int output = 0;  // which output of its producer the tensor is
  Shared<Tensor(const Tensor& gradient)> replace;
  Shared<void()> accumulated;
};
using GradHooks = std::vector<std::shared_ptr<GradHook>>;

// For errors about a leaf that cannot be used by itself. Static.
struct LeafOwner {
  std::string_view name;    // "fully_shard"
  std::string_view remedy;  // what to call instead of an operator on the leaf
};

// What a tensor knows about its gradient. A leaf has no producer.
struct GradMeta {
  GradMeta() = default;
  ~GradMeta();  // releases the producer without recursion, so a tape of any length can be freed
  GradMeta(const GradMeta&) = delete;
  GradMeta& operator=(const GradMeta&) = delete;

  bool requires_grad = false;
  std::shared_ptr<GradNode> producer;
  int output = 0;                    // which output of the producer
  Tensor gradient;                   // accumulated over backward calls
  std::shared_ptr<const Spec> spec;  // of the tensor itself; null for a plain one
  std::uint64_t origin = 0;          // of a leaf (Tensor::origin)
  GradHooks hooks;                   // of a leaf
  // Of a leaf: the collector of its gradient (DataParallel), its number there, and whether
  // `gradient` is already summed over the collector's ranks.
  std::weak_ptr<GradCollector> collector;
  int collected_as = 0;
  bool summed = false;
  std::string_view name = {};  // of a leaf: what its module calls it, for errors; interned
  // Of a leaf, by communicator (dtensor/tape/marks.h): of the gradient; along which each rank
  // trains its own; along which it has been compared with the other ranks', and with another value
  // than zero.
  struct Terms {
    std::uint64_t alike = 0;       // along which it has terms that are not known to vary
    std::uint64_t alike_loss = 0;  // or that come from such a loss
    std::uint64_t summed = 0;      // along which it has been summed
    std::string_view from = {};    // what made one that varies: static text
  } terms;
  std::uint64_t own_along = 0, compared_along = 0, judged_along = 0;
  // Of a leaf that is a part of a parameter: who gathers it and reduces its gradient, which no
  // record delivers. Null: nobody.
  const LeafOwner* owner = nullptr;
};

// Where a record delivers the gradients of its inputs.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual bool needs_grad(int input) const = 0;
  virtual void accumulate(int input, Tensor gradient) = 0;
  // A gradient off the critical path (a leaf's): computed after the next collective of the backward
  // pass has been issued, so that it overlaps with it.
  virtual void defer(int input, std::function<Tensor()> compute) = 0;
  // accumulate(input, matmul(dy, weight)). Where `overlap` permits, by blocks of rows: computed as
  // shards of dy arrive, or each sent, once computed, to the rank that sums it, together with the
  // other matmuls whose results are gradients of the same tensor.
  virtual void accumulate_product(int input, const Tensor& dy, const Tensor& weight,
                                  Overlap overlap) = 0;
  // defer(input, dy^T @ x over all rows): the gradient of a weight.
  virtual void defer_rows_product(int input, const Tensor& dy, const Tensor& x) = 0;
  // Whether the record that reads this gradient is forecast to end sooner if the all_gather that
  // fills it is asked to bring its shards one by one.
  virtual bool multiplies_sooner(int /*input*/, const Gathered& /*gradient*/) const {
    return false;
  }
  // Delivers the gradient of a tensor older than the record.
  virtual void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) = 0;
  // Keeps `held` until all records newer than number `record` have run, and the products that they
  // gave to that one are computed; or until backward fails.
  virtual void hold(std::uint64_t record, std::shared_ptr<void> held) = 0;
};

class GradNode : public std::enable_shared_from_this<GradNode> {
 public:
  virtual ~GradNode() = default;
  virtual std::string_view name() const = 0;
  // Whether `backward` is itself recorded when the tape is on, so that second derivatives are
  // right; otherwise they are refused.
  virtual bool records_backward() const { return false; }
  // Whether the output shares the input's memory without being a view of it (Tensor::base).
  virtual bool shares_memory() const { return false; }
  // output_grads: at least one is defined; undefined where no gradient arrived. On the CPU their
  // data have arrived.
  virtual void backward(std::span<const Tensor> output_grads, GradSink& sink) = 0;
  // For a backward that awaits: a task that replaces backward(); null otherwise.
  virtual Task<void> awaited_backward(std::vector<Tensor> /*output_grads*/, GradSink& /*sink*/) {
    return {};
  }
  // The layout to which backward first redistributes the gradient of its only output, which may
  // already have it; null: none.
  virtual const Layout* gradient_layout() const { return nullptr; }
  // Whether backward() takes this gradient of its only output while its shards arrive
  // (OpDef::takes_arriving).
  virtual bool takes_arriving(const Gathered& /*output_grad*/,
                              std::int64_t /*meanwhile_ns*/) const {
    return false;
  }
  // Frees what was saved (saved.h) after backward used it; returns whether there was anything.
  virtual bool release() { return false; }

  bool released = false;  // and there was something to free
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<GradMeta>> inputs;   // null where no gradient is needed
  GradHooks hooks;                                 // of its outputs
  std::vector<std::weak_ptr<GradMeta>> retaining;  // outputs with retain_grad
  // Path of the module whose forward made it; null if none, or if the rank is not observed.
  std::shared_ptr<const std::string> module;
  std::uint64_t origin = 0;      // of its first output (Tensor::origin)
  std::string_view module_path;  // the same on every rank, for its collectives; static text
};

// Whether an operator on these inputs is to be recorded: the tape is on in this branch and an input
// requires a gradient.
bool taped(std::span<const Tensor> inputs);
// Puts `record` on the tape as the producer of `outputs`. `inputs`: the tensors that the record's
// gradients belong to.
void push_record(std::shared_ptr<GradNode> record, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs);
// `tensor` is now output number `output` of `producer`.
void mark_output(const Tensor& tensor, std::shared_ptr<GradNode> producer, int output);
// Number of the newest record; later ones have larger numbers.
std::uint64_t newest_record();

// While one is alive, operators in this branch are not recorded.
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
// Turns recording on or off in this branch from now on (torch.set_grad_enabled).
void set_grad_enabled(bool on);

}  // namespace coshard
#pragma GCC visibility pop
