#pragma once
// A walk of the tape: records wait in a queue ordered by age, the newest first; since a record only
// points to older ones, everything that feeds it has run when its turn comes. Rank's thread.
#include <deque>
#include <map>
#include <unordered_set>

#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/tape.h>

namespace coshard {

// The gradients that met at one place, in the order in which they came. Those in flight are kept
// apart until they have been awaited, so that adding them waits for nothing.
struct Terms {
  Tensor first;
  std::vector<Tensor> more;

  void add_term(Tensor gradient);
  bool in_flight() const;
  void list(std::vector<Tensor>& all) const;
  Tensor sum();
};

// Tells the observers to whose forward the part of backward belongs that runs now.
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

class Walk final : public GradSink {
 public:
  explicit Walk(bool retain_graph) : retain_graph_(retain_graph) {}
  // Up to the records that are not newer than `since`: what is for those goes to `outer`.
  Walk(std::uint64_t since, GradSink& outer) : outer_(&outer), since_(since) {}
  // For gradients of `targets`, which are kept for result(), and nothing else.
  Walk(bool retain_graph, const std::vector<Tensor>& targets, const std::vector<Tensor>& outputs);

  void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) override;
  // What has come to leaves is added up. After arrive() from outside.
  void settle_arrivals();
  bool done() const { return queue_.empty() && deferred_.empty(); }
  // Whether the next record needs a collective that is still in flight: the program's structure,
  // the same on all ranks.
  bool about_to_wait() const;
  std::vector<Tensor> awaited() const;
  // Leaves and targets where gradients in flight met, or whose hooks wait for them.
  bool has_late_leaves() const { return !late_.empty(); }
  std::vector<Tensor> awaited_by_leaves() const;
  // A sibling's walk may have added to a leaf meanwhile. Unless in_place, a leaf whose gradient is
  // in flight again is left for the next round.
  void settle_leaves(bool in_place);
  // What siblings do meanwhile is not this backward's.
  void pause() { turn_.to(nullptr); }
  void run_deferred();
  // Does the next part; a task when that has to await. Then step_done().
  Task<void> step();
  void step_done();
  // The targets' gradients, when nothing is left to do; undefined where nothing arrived.
  std::vector<Tensor> result();

  bool wants(int input) const override;
  void give(int input, Tensor gradient) override;
  void defer(int input, std::function<Tensor()> compute) override;

 private:
  using Meta = std::shared_ptr<GradMeta>;
  struct Waiting {
    std::shared_ptr<Record> record;
    std::array<Terms, kMaxOutputs> gradients;
  };
  struct Deferred {
    Meta leaf;
    std::function<Tensor()> compute;
    std::shared_ptr<const std::string> module;
    std::string_view operation;  // static text
  };
  struct Target {
    Meta meta;
    Terms terms;
  };
  // Bounds the activations that deferred gradients keep alive: one block's worth of weights.
  static constexpr std::size_t kMostDeferred = 8;

  bool leads_to_target(const Meta& meta) const;
  void find_needed(const std::vector<Tensor>& outputs);
  void come_to_leaf(const Meta& leaf, Tensor gradient);
  void run_hooks(std::vector<Tensor>& gradients) const;
  void run_oldest_deferred();

  bool retain_graph_ = false;
  GradSink* outer_ = nullptr;
  std::uint64_t since_ = 0;
  bool for_targets_ = false;
  std::vector<Target> targets_;
  std::unordered_set<const Record*> needed_;  // records behind which a target lies
  std::map<std::uint64_t, Waiting, std::greater<>> queue_;
  std::deque<Deferred> deferred_;
  std::vector<std::pair<Meta, Tensor>> arrived_;  // at leaves, in this step
  std::vector<std::pair<Meta, Terms>> late_;
  std::shared_ptr<Record> current_;
  ModuleTurn turn_;
};

}  // namespace coshard
