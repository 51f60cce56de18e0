#pragma once
// One backward pass: records wait in a queue, newest first. A record only points to older ones, so
// every record that feeds it has run before it does. While the gradients of the newest record are
// in flight, an older one that it does not feed may run: of two chains recorded by siblings of a
// when_all, one computes while the collectives of the other are in flight. Rank's thread.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <unordered_set>

#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/backward/collected_leaves.h"
#include "runtime/coro/user_call.h"

namespace coshard {

// The gradients to be summed for one tensor, in the order in which backward produced them. Those in
// flight are kept apart until they have been awaited, so that adding them never waits.
struct Terms {
  Tensor first;
  std::vector<Tensor> more;

  bool empty() const { return !first.defined() && more.empty(); }
  void add_term(Tensor gradient);
  bool in_flight() const;
  void list(std::vector<Tensor>& all) const;
  Tensor sum();
};

// Tells observers which module's forward the running part of backward belongs to.
class ModuleTurn {
 public:
  ModuleTurn() = default;
  ~ModuleTurn() { to(nullptr); }
  ModuleTurn(const ModuleTurn&) = delete;
  ModuleTurn& operator=(const ModuleTurn&) = delete;
  void to(const std::shared_ptr<const std::string>& module);

 private:
  std::shared_ptr<const std::string> told_;
};

class BackwardPass final : public GradSink {
 public:
  explicit BackwardPass(bool retain_graph) : retain_graph_(retain_graph) {}
  // Stops at records that are not newer than `since`: their gradients go to `outer`.
  BackwardPass(std::uint64_t since, GradSink& outer);
  // Only for gradients of `targets`, which are kept for result().
  BackwardPass(bool retain_graph, const std::vector<Tensor>& targets,
               const std::vector<Tensor>& outputs);

  void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) override;
  // What is known of the loss (Tensor::marks).
  void set_loss_marks(std::uint64_t marks) { loss_marks_ = marks; }
  // Call before the first step: gradients of leaves reachable from `root` are sent as soon as they
  // are complete (grad_collector.h).
  void collect(const std::shared_ptr<GradMeta>& root) { collected_.find(root); }
  // Adds the gradients that have reached leaves. Call after arrive() from outside the pass.
  void settle_arrivals();
  bool done() const { return queue_.empty() && deferred_.empty(); }
  // Whether nothing can run before a collective that is still in flight has been awaited; depends
  // on the program's structure, so it is the same on all ranks.
  bool about_to_wait() const;
  std::vector<Tensor> awaited() const;
  // Targets, and leaves whose gradients must have arrived before they are added or shown to hooks.
  bool has_late_leaves() const { return !late_.empty(); }
  std::vector<Tensor> awaited_by_leaves() const;
  // A sibling's backward may have added to a leaf since. Unless in_place, a leaf whose gradient is
  // in flight again is left for the next round.
  void settle_leaves(bool in_place);
  // Call before suspending: what siblings do until the next step is not part of this backward.
  void pause() { turn_.to(nullptr); }
  void run_deferred();
  // From now on nothing may be awaited, so products are computed without overlapped schedules.
  void stay_in_place() { may_await_ = false; }
  // Whether the gradient of the next record includes matmuls that have not been computed yet.
  bool has_products() const { return !queue_.empty() && !next()->second.products.empty(); }
  Task<void> sum_products();
  // Runs the next part; returns a task if that has to await. Then call step_done().
  Task<void> step();
  void step_done();
  // Call once nothing is left to do: sends the collected gradients that have not been sent. Then
  // settle(), when what collectors wait for has arrived.
  void end();
  std::vector<Tensor> awaited_by_collectors() const { return collected_.awaited(); }
  void settle() { collected_.settle(); }
  // The targets' gradients, once nothing is left to do; undefined if none arrived.
  std::vector<Tensor> result();

  bool needs_grad(int input) const override;
  void accumulate(int input, Tensor gradient) override;
  void defer(int input, std::function<Tensor()> compute) override;
  void accumulate_product(int input, const Tensor& dy, const Tensor& weight,
                          Overlap overlap) override;
  void defer_rows_product(int input, const Tensor& dy, const Tensor& x) override;
  bool multiplies_sooner(int input, const Gathered& gradient) const override;
  void hold(std::uint64_t record, std::shared_ptr<void> held) override;

 private:
  using Meta = std::shared_ptr<GradMeta>;
  // A term dy @ weight.
  struct Product {
    Tensor dy, weight;
    Overlap overlap;
    std::shared_ptr<const std::string> module;
  };
  struct Waiting {
    std::shared_ptr<GradNode> record;
    std::array<Terms, kMaxOutputs> gradients;
    std::vector<Product> products;  // of its only output, not computed yet

    bool in_flight() const { return std::ranges::any_of(gradients, &Terms::in_flight); }
  };
  struct Deferred {
    Meta leaf;
    std::function<Tensor()> compute;
    std::shared_ptr<const std::string> module;
    std::string_view operation;  // static text
    std::int64_t ns = 0;         // the gate's forecast; 0: unknown
  };
  struct Target {
    Meta meta;
    Terms terms;
  };
  // The newest first.
  using Queue = std::map<std::uint64_t, Waiting, std::greater<>>;
  // Limits the activations that deferred gradients keep alive: one block's worth of weights.
  static constexpr std::size_t kMostDeferred = 8;

  bool leads_to_target(const Meta& meta) const;
  void find_needed(const std::vector<Tensor>& outputs);
  Queue::const_iterator next() const;
  void come_to_leaf(const Meta& leaf, Tensor gradient);
  void complete_leaves();
  void let_go();
  // False if more of this leaf's gradient is deferred or in flight; else adds what was kept apart.
  bool settle_collected(const Meta& leaf);
  void settle_leaf(GradMeta& leaf, Terms& terms);
  bool has_arrived(const Meta& leaf) const;
  Tensor compute_for(const Meta& leaf, const std::function<Tensor()>& compute) const;
  void run_hooks(std::vector<Tensor>& gradients) const;
  bool takes_arriving(const Waiting& waiting) const;
  bool takes_arriving(const GradNode& record, const Gathered& gradient) const;
  bool may_be_summed(const Meta& meta, const Product& product) const;
  Task<void> multiply_arriving();
  void push_deferred(int input, std::function<Tensor()> compute, std::int64_t ns);
  std::int64_t deferred_ns() const;
  // Runs the oldest, at most `count` of them, until their forecast times add up to `ns`.
  void run_deferred_for(std::int64_t ns, std::size_t count);
  void run_oldest_deferred();

  bool retain_graph_ = false;
  std::uint64_t loss_marks_ = 0;
  bool may_await_ = true;
  GradSink* outer_ = nullptr;
  const BackwardPass* outer_pass_ = nullptr;  // the same, or null
  std::uint64_t since_ = 0;
  bool for_targets_ = false;
  std::vector<Target> targets_;
  std::unordered_set<const GradNode*> needed_;  // records that lead to a target
  Queue queue_;
  std::deque<Deferred> deferred_;
  std::size_t deferred_before_ = 0;  // size of deferred_ when the step began
  std::optional<Product> arriving_;  // of the step's input 0, until it is computed; dy in flight
  // Gradients of the step's other inputs, which read dy.
  std::vector<std::pair<int, std::function<Tensor()>>> after_arriving_;
  std::vector<std::pair<Meta, Tensor>> arrived_;  // at leaves, in this step
  std::vector<std::pair<Meta, Terms>> late_;
  CollectedLeaves collected_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<void>>> held_;
  bool adds_to_leaves_ = true;  // false for targets, of this pass or the outer one
  std::shared_ptr<GradNode> current_;
  struct Place {
    explicit Place(const GradNode& record) : operation(record.name()), module(record.module_path) {}
    WithinOperator operation;
    WithinModule module;
  };
  std::optional<Place> place_;  // of the step's collectives
  ModuleTurn turn_;
};

}  // namespace coshard
