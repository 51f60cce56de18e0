#include "dtensor/tape.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "dtensor/finite_guard.h"
#include "dtensor/grad_mode.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/ops.h"
#include "dtensor/random.h"
#include "dtensor/redistribute/redistribute.h"
#include "dtensor/step_graph.h"
#include "runtime/coro/rank_context.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

struct Recording {
  bool on = true;
};
const BranchLocal<Recording> recording;
const RankLocal<std::uint64_t> last_sequence;

// The gradients that met at one place, in the order in which they came. Those in flight are kept
// apart until they have been awaited, so that adding them waits for nothing.
struct Terms {
  Tensor first;
  std::vector<Tensor> more;

  void add_term(Tensor gradient) {
    if (!first.defined()) {
      first = std::move(gradient);
    } else if (more.empty() && !first.in_flight() && !gradient.in_flight()) {
      first = add(first, gradient);
    } else {
      more.push_back(std::move(gradient));
    }
  }
  bool in_flight() const {
    if (first.defined() && first.in_flight()) return true;
    return std::ranges::any_of(more, [](const Tensor& t) { return t.in_flight(); });
  }
  void list(std::vector<Tensor>& all) const {
    if (first.defined()) all.push_back(first);
    all.insert(all.end(), more.begin(), more.end());
  }
  Tensor sum() {
    for (const Tensor& term : std::exchange(more, {})) first = add(first, term);
    return first;
  }
};

// A leaf keeps its own layout, except that a sum over a replicated dimension is left to the
// optimizer.
Tensor fit_to_leaf(const Tensor& gradient, const GradMeta& leaf) {
  if (!leaf.spec || !gradient.is_distributed()) return gradient;
  Layout target = partial_as_replicate(leaf.spec->layout);
  for (int m = 0; m < target.ndim(); ++m) {
    if (target[m].is_replicate() && gradient.layout()[m].is_partial())
      target[m] = gradient.layout()[m];
  }
  if (target == gradient.layout()) return gradient;
  const Tensor inputs[] = {gradient};
  return taped(inputs) ? redistribute(gradient, target).tensor()
                       : redistribute_raw(gradient, target);
}

// Tells the observers to whose forward the part of backward belongs that runs now.
class ModuleTurn {
 public:
  ModuleTurn() = default;
  ~ModuleTurn() { to(nullptr); }
  ModuleTurn(const ModuleTurn&) = delete;
  ModuleTurn& operator=(const ModuleTurn&) = delete;

  void to(const std::shared_ptr<const std::string>& module) {
    if (module == told_ || (module && told_ && *module == *told_)) return;
    World* world = World::current();
    if (!world || !world->observed()) return;
    if (told_) world->observer().module_exit(*told_);
    told_ = module;
    if (told_) world->observer().module_enter(*told_);
  }

 private:
  std::shared_ptr<const std::string> told_;
};

// The walk: records wait in a queue ordered by age, the newest first; since a record only points to
// older ones, everything that feeds it has run when its turn comes.
class Walk final : public GradSink {
 public:
  void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) {
    if (!meta || !meta->requires_grad) return;
    if (!meta->producer) {
      return arrive_at_leaf(meta, fit_to_leaf(gradient, *meta));
    }
    Waiting& waiting = queue_[meta->producer->sequence];
    waiting.record = meta->producer;
    waiting.gradients[static_cast<std::size_t>(meta->output)].add_term(std::move(gradient));
  }

  bool done() const { return queue_.empty() && deferred_.empty(); }

  // Whether the next record needs a collective that is still in flight: the program's structure,
  // the same on all ranks.
  bool about_to_wait() const {
    if (queue_.empty()) return false;
    const auto& gradients = queue_.begin()->second.gradients;
    return std::ranges::any_of(gradients, [](const Terms& terms) { return terms.in_flight(); });
  }
  // What that is.
  std::vector<Tensor> awaited() const {
    std::vector<Tensor> all;
    for (const Terms& terms : queue_.begin()->second.gradients) terms.list(all);
    return all;
  }
  // Leaves where gradients in flight met.
  bool has_late_leaves() const { return !late_.empty(); }
  std::vector<Tensor> awaited_by_leaves() const {
    std::vector<Tensor> all;
    for (const auto& [leaf, terms] : late_) {
      if (leaf->gradient.defined()) all.push_back(leaf->gradient);
      terms.list(all);
    }
    return all;
  }
  // A sibling's walk may have added to a leaf meanwhile. Unless in_place, a leaf whose gradient is
  // in flight again is left for the next round.
  void settle_leaves(bool in_place) {
    std::erase_if(late_, [in_place](auto& late) {
      auto& [leaf, terms] = late;
      Tensor& sum = leaf->gradient;
      if (!in_place && sum.defined() && sum.in_flight()) return false;
      std::vector<Tensor> own;
      terms.list(own);
      for (const Tensor& term : own) sum = sum.defined() ? add(sum, term) : term;
      return true;
    });
  }

  // What siblings do meanwhile is not this backward's.
  void pause() { turn_.to(nullptr); }

  void run_deferred() {
    while (!deferred_.empty()) run_oldest_deferred();
  }

  // Does the next part; a task when that has to await.
  Task<void> step() {
    if (queue_.empty()) {
      run_deferred();
      return {};
    }
    Waiting waiting = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    current_ = std::move(waiting.record);
    turn_.to(current_->module);
    CS_REQUIRE(!grad_enabled() || current_->records_backward(), current_->name(),
               ": its gradient cannot be differentiated again");
    std::vector<Tensor> gradients;
    for (Terms& terms : waiting.gradients) {
      gradients.push_back(terms.sum());
      require_finite(gradients.back(), "a gradient arriving at", current_->name(),
                     current_->module);
    }
    Task<void> task = current_->awaited_backward(gradients, *this);
    if (!task) current_->backward(gradients, *this);
    while (deferred_.size() > kMostDeferred) run_oldest_deferred();
    return task;
  }

  bool wants(int input) const override {
    const auto& meta = current_->inputs[static_cast<std::size_t>(input)];
    return meta && meta->requires_grad;
  }

  void give(int input, Tensor gradient) override {
    if (!gradient.defined()) return;
    require_finite(gradient, "a gradient given by", current_->name(), current_->module);
    arrive(current_->inputs[static_cast<std::size_t>(input)], std::move(gradient));
  }

  void defer(int input, std::function<Tensor()> compute) override {
    if (!wants(input)) return;
    const auto& meta = current_->inputs[static_cast<std::size_t>(input)];
    // Only a distributed leaf: nobody waits for it, and only then are there collectives to work
    // under.
    if (meta->producer || !meta->spec) return give(input, compute());
    deferred_.push_back({meta, std::move(compute), current_->module, current_->name()});
  }

 private:
  struct Waiting {
    std::shared_ptr<Record> record;
    std::array<Terms, kMaxOutputs> gradients;
  };
  struct Deferred {
    std::shared_ptr<GradMeta> leaf;
    std::function<Tensor()> compute;
    std::shared_ptr<const std::string> module;
    std::string_view operation;  // static text
  };
  // Bounds the activations that deferred gradients keep alive: one block's worth of weights.
  static constexpr std::size_t kMostDeferred = 8;

  void arrive_at_leaf(const std::shared_ptr<GradMeta>& leaf, Tensor gradient) {
    if (StepGraph* step = StepGraph::recording()) step->meet(leaf);
    const auto late = std::ranges::find(late_, leaf, [](const auto& entry) { return entry.first; });
    if (late != late_.end()) return late->second.add_term(std::move(gradient));
    Terms terms{leaf->gradient, {}};
    terms.add_term(gradient);
    if (!terms.more.empty())
      late_.emplace_back(leaf, Terms{std::move(gradient), {}});
    else
      leaf->gradient = terms.first;
  }

  void run_oldest_deferred() {
    Deferred deferred = std::move(deferred_.front());
    deferred_.pop_front();
    turn_.to(deferred.module);
    Tensor gradient = deferred.compute();
    require_finite(gradient, "a gradient given by", deferred.operation, deferred.module);
    arrive(deferred.leaf, std::move(gradient));
  }

  std::map<std::uint64_t, Waiting, std::greater<>> queue_;
  std::deque<Deferred> deferred_;
  std::vector<std::pair<std::shared_ptr<GradMeta>, Terms>> late_;
  std::shared_ptr<Record> current_;
  ModuleTurn turn_;
};

Tensor seed_of(const Tensor& loss, const Tensor& gradient) {
  CS_REQUIRE(loss.defined() && loss.requires_grad(),
             "backward: no tensor that requires a gradient is behind ", loss);
  if (const auto& producer = loss.grad_meta()->producer)
    require_finite(loss, "the loss, made by", producer->name(), producer->module);
  if (gradient.defined()) {
    CS_REQUIRE(gradient.shape() == loss.shape(), "backward: gradient ", gradient, " for ", loss);
    CS_REQUIRE(gradient.is_distributed() == loss.is_distributed(), "backward: gradient ", gradient,
               " for ", loss);
    return gradient;
  }
  const bool nothing =
      !loss.is_distributed() && loss.local_shape() == Shape{0};  // outside the mesh
  CS_REQUIRE(loss.numel() == 1 || nothing, "backward: ", loss, " has ", loss.numel(),
             " elements and no gradient was given");
  if (!loss.is_distributed()) return ones(loss.device(), loss.shape(), loss.dtype());
  return ones(loss.mesh(), partial_as_replicate(loss.layout()), loss.shape(), loss.dtype());
}

// The tape is off while one lives, unless gradients are to be recorded.
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

}  // namespace

bool grad_enabled() { return recording.get().on; }
NoGradGuard::NoGradGuard() : before_(grad_enabled()) { recording.own().on = false; }
NoGradGuard::~NoGradGuard() { recording.own().on = before_; }
RecordGuard::RecordGuard() : before_(grad_enabled()) { recording.own().on = true; }
RecordGuard::~RecordGuard() { recording.own().on = before_; }

bool taped(std::span<const Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& t : inputs)
    if (t.defined() && t.requires_grad()) return true;
  return false;
}

void mark_output(const Tensor& tensor, std::shared_ptr<Record> producer, int output) {
  auto meta = std::make_shared<GradMeta>();
  meta->requires_grad = true;
  meta->producer = std::move(producer);
  meta->output = output;
  meta->spec = tensor.spec();
  meta->version = tensor.storage()->changes();
  tensor.set_grad_meta(std::move(meta));
}

void push_record(std::shared_ptr<Record> record, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs) {
  record->sequence = ++*last_sequence;
  if (const World* world = World::current(); world && world->observed())
    record->module = world->module();
  record->inputs.reserve(inputs.size());
  for (const Tensor& t : inputs) {
    const bool wanted = t.defined() && t.requires_grad();
    record->inputs.push_back(wanted ? t.grad_meta() : nullptr);
    CS_REQUIRE(!wanted || t.is_leaf() || t.grad_meta()->version == t.storage()->changes(),
               record->name(), ": ", t, " was changed in place through another view of its memory");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !is_floating(outputs[i].dtype())) continue;
    mark_output(outputs[i], record, static_cast<int>(i));
  }
}

void replace_on_tape(const Tensor& x, const Tensor& result) {
  auto meta = std::make_shared<GradMeta>(*result.grad_meta());
  meta->spec = x.spec();
  meta->version = x.storage()->changes();
  x.set_grad_meta(std::move(meta));
}

Task<void> backward(Tensor loss, Tensor gradient, bool create_graph, CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(create_graph);
  Walk walk;
  walk.arrive(loss.grad_meta(), seed_of(loss, gradient));
  while (!walk.done()) {
    if (walk.about_to_wait()) {
      walk.run_deferred();
      walk.pause();
      Task<void> arrived = arrival_of(walk.awaited());
      co_await std::move(arrived);
    }
    Task<void> rest = walk.step();
    if (rest) co_await std::move(rest);
  }
  while (walk.has_late_leaves()) {
    Task<void> arrived = arrival_of(walk.awaited_by_leaves());
    co_await std::move(arrived);
    walk.settle_leaves(false);
  }
}

void run_backward(const Tensor& loss, const Tensor& gradient, bool create_graph, CallSite site) {
  const UserCall user(site);
  BackwardScope scope;
  const QuietUnless mode(create_graph);
  Walk walk;
  walk.arrive(loss.grad_meta(), seed_of(loss, gradient));
  while (!walk.done()) {
    if (walk.about_to_wait()) walk.run_deferred();
    CS_REQUIRE(!walk.step(),
               "run_backward: what it goes through awaits; co_await backward instead");
  }
  walk.settle_leaves(true);
}

}  // namespace coshard
