#include "dtensor/backward/backward_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <coshard/dtensor/backward/finite_guard.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/ops/products.h"
#include "dtensor/ops/row_choice.h"
#include "dtensor/ops/row_schedules.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"

namespace coshard {
namespace {

// The tape's record of a copy.
class CopyNode final : public GradNode {
 public:
  std::string_view name() const override { return "copy"; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.accumulate(0, output_grads[0]);
  }
};

// A copy in its own memory, in flight if `x` is.
Tensor own_copy(const Tensor& x) {
  Tensor copy = copy_later(x);
  const Tensor inputs[] = {x};
  if (taped(inputs)) push_record(std::make_shared<CopyNode>(), inputs, std::span<Tensor>(&copy, 1));
  return copy;
}

bool is_stretched(const Tensor& x) {
  for (std::size_t d = 0; d < x.strides().size(); ++d)
    if (x.strides()[d] == 0 && x.local_shape()[d] > 1) return true;
  return false;
}

// The gradient in memory that nothing else refers to, each element at its own address.
Tensor owned(Tensor gradient) {
  if (!gradient.owns_memory() || is_stretched(gradient)) return own_copy(gradient);
  gradient.set_unwritable(nullptr);
  return gradient;
}

// A leaf keeps its own layout, except that a sum over a replicated dimension is left to the
// optimizer.
Tensor fit_to_leaf(Tensor gradient, const GradMeta& leaf) {
  if (!leaf.spec || !gradient.is_distributed()) return gradient;
  Layout target = partial_as_replicate(leaf.spec->layout);
  for (int m = 0; m < target.ndim(); ++m) {
    if (target[m].is_replicate() && gradient.layout()[m].is_partial())
      target[m] = gradient.layout()[m];
  }
  if (target == gradient.layout()) return gradient;
  const Tensor inputs[] = {gradient};
  if (taped(inputs)) return redistribute(gradient, target).tensor();
  const Tensor fitted = redistribute_raw(gradient, target);
  const bool is_part = fitted.storage()->buffer == gradient.storage()->buffer &&
                       fitted.local_numel() < gradient.local_numel();
  return is_part ? copy_later(fitted) : fitted;  // a view would keep the whole alive
}

void set_origin_of(const Tensor& gradient, std::uint64_t of_tensor) {
  if (gradient.defined() && of_tensor != 0) gradient.set_origin(origin_of_gradient(of_tensor));
}

// Of a leaf that is multiplied by zero so that every rank reaches it. Does not wait.
bool is_known_zero(const Tensor& gradient) {
  constexpr std::int64_t kMostCopied = 1 << 16;
  if (gradient.in_flight() || gradient.device()->kind() != DeviceKind::Cpu) return false;
  if (!gradient.is_contiguous() && gradient.local_numel() > kMostCopied) return false;
  const Tensor local = local_contiguous(gradient);
  const auto* at = static_cast<const std::byte*>(local.address());
  const std::size_t bytes = static_cast<std::size_t>(local.local_numel()) * size_of(local.dtype());
  return std::all_of(at, at + bytes, [](std::byte each) { return each == std::byte{0}; });
}

void add_to_gradient(GradMeta& meta, Tensor gradient) {
  if (const auto collector = meta.collector.lock())
    return collector->add(meta, std::move(gradient));
  meta.gradient =
      meta.gradient.defined() ? add(meta.gradient, gradient) : owned(std::move(gradient));
}

// The gradient as a hook sees it: not writable, since others may share its memory.
Tensor shown(const Tensor& gradient) {
  Tensor seen = gradient.detach();
  seen.set_grad_meta(gradient.grad_meta());
  seen.set_unwritable(
      "is a gradient that other operators may read; return a changed clone() of it from the hook");
  return seen;
}

void tell_accumulated(const GradMeta& leaf) {
  for (const auto& hook : GradHooks(leaf.hooks))
    if (const auto accumulated = hook->accumulated) (*accumulated)();
}

// By value: a hook may register others, and remove itself.
Tensor hooked(GradHooks hooks, int output, Tensor gradient) {
  for (const std::shared_ptr<GradHook>& hook : hooks) {
    const auto replace = hook->replace;
    if (!replace || hook->output != output) continue;
    const Tensor seen = shown(gradient);
    Tensor replaced = (*replace)(seen);
    if (!replaced.defined() || replaced.id() == seen.id()) continue;
    CS_REQUIRE(gradient.fits_as_gradient(replaced), "register_hook: the hook returned ", replaced,
               " for gradient ", gradient);
    gradient = std::move(replaced);
  }
  return gradient;
}

}  // namespace

void Terms::add_term(Tensor gradient) {
  if (!first.defined()) {
    first = std::move(gradient);
  } else if (more.empty() && !first.in_flight() && !gradient.in_flight()) {
    first = add(first, gradient);
  } else {
    more.push_back(std::move(gradient));
  }
}

bool Terms::in_flight() const {
  if (first.defined() && first.in_flight()) return true;
  return std::ranges::any_of(more, [](const Tensor& t) { return t.in_flight(); });
}

void Terms::list(std::vector<Tensor>& all) const {
  if (first.defined()) all.push_back(first);
  all.insert(all.end(), more.begin(), more.end());
}

Tensor Terms::sum() {
  for (const Tensor& term : std::exchange(more, {})) first = add(first, term);
  return std::exchange(first, Tensor());
}

void ModuleTurn::to(const std::shared_ptr<const std::string>& module) {
  if (module == told_ || (module && told_ && *module == *told_)) return;
  World* world = World::current();
  if (!world || !world->observed()) return;
  if (told_) world->observer().module_exit(*told_);
  told_ = module;
  if (told_) world->observer().module_enter(*told_);
}

BackwardPass::BackwardPass(std::uint64_t since, GradSink& outer)
    : outer_(&outer), outer_pass_(dynamic_cast<const BackwardPass*>(&outer)), since_(since) {
  adds_to_leaves_ = outer_pass_ != nullptr && outer_pass_->adds_to_leaves_;
}

BackwardPass::BackwardPass(bool retain_graph, const std::vector<Tensor>& targets,
                           const std::vector<Tensor>& outputs)
    : retain_graph_(retain_graph), for_targets_(true), adds_to_leaves_(false) {
  for (const Tensor& target : targets) targets_.push_back({target.grad_meta(), {}});
  find_needed(outputs);
}

// A record is needed when one of its inputs is a target, or a needed record made it.
void BackwardPass::find_needed(const std::vector<Tensor>& outputs) {
  std::map<std::uint64_t, GradNode*> behind;  // the oldest first
  std::vector<GradNode*> unseen;
  const auto meet = [&](const Meta& meta) {
    if (!meta || !meta->producer) return;
    if (behind.emplace(meta->producer->sequence, meta->producer.get()).second)
      unseen.push_back(meta->producer.get());
  };
  for (const Tensor& output : outputs) meet(output.grad_meta());
  while (!unseen.empty()) {
    const GradNode* record = unseen.back();
    unseen.pop_back();
    for (const Meta& input : record->inputs) meet(input);
  }
  for (const auto& [age, record] : behind)
    if (std::ranges::any_of(record->inputs, [&](const Meta& m) { return leads_to_target(m); }))
      needed_.insert(record);
}

// A tensor may have several metas: a record that saved it has its own.
bool BackwardPass::leads_to_target(const Meta& meta) const {
  if (!meta) return false;
  if (meta->producer && needed_.contains(meta->producer.get())) return true;
  return std::ranges::any_of(targets_, [&](const Target& target) {
    if (target.meta == meta) return true;
    return meta->producer && target.meta && target.meta->producer == meta->producer &&
           target.meta->output == meta->output;
  });
}

void BackwardPass::arrive(const Meta& meta, Tensor gradient) {
  if (!meta || !meta->requires_grad) return;
  if (outer_ != nullptr && (!meta->producer || meta->producer->sequence <= since_))
    return outer_->arrive(meta, std::move(gradient));
  if (for_targets_ && !leads_to_target(meta)) return;
  if (!meta->producer) {
    if (!for_targets_ && (gradient.marks() != 0 || !is_known_zero(gradient)))
      note_term(*meta, gradient.marks(), loss_marks_);
    return void(arrived_.emplace_back(meta, std::move(gradient)));
  }
  Waiting& waiting = queue_[meta->producer->sequence];
  waiting.record = meta->producer;
  waiting.gradients[static_cast<std::size_t>(meta->output)].add_term(std::move(gradient));
}

// Runs once the step has dropped its handles, so that a gradient with no other owner is not copied.
void BackwardPass::settle_arrivals() {
  for (auto& [leaf, gradient] : std::exchange(arrived_, {})) {
    set_origin_of(gradient, leaf->origin);
    come_to_leaf(leaf, fit_to_leaf(std::move(gradient), *leaf));
  }
  if (!collected_.empty()) complete_leaves();
}

void BackwardPass::come_to_leaf(const Meta& leaf, Tensor gradient) {
  const auto late = std::ranges::find(late_, leaf, [](const auto& entry) { return entry.first; });
  if (late != late_.end()) return late->second.add_term(std::move(gradient));
  if (!for_targets_) {
    if (StepGraph* step = StepGraph::recording()) step->meet(leaf);
    const Tensor& sum = leaf->gradient;
    const bool kept_in_flight = !sum.defined() && leaf->collector.expired();
    const bool waits =
        !kept_in_flight && (gradient.in_flight() || (sum.defined() && sum.in_flight()));
    if (leaf->hooks.empty() && !waits) return add_to_gradient(*leaf, std::move(gradient));
  }
  late_.emplace_back(leaf, Terms{std::move(gradient), {}});
}

bool BackwardPass::about_to_wait() const {
  if (queue_.empty()) return false;
  const Waiting& waiting = next()->second;
  return waiting.in_flight() && !takes_arriving(waiting);
}

// The newest record whose gradients are complete and have arrived; the newest of all if there is
// none, or if the search gets long.
BackwardPass::Queue::const_iterator BackwardPass::next() const {
  constexpr int kMostSeen = 64;
  if (!queue_.begin()->second.in_flight()) return queue_.begin();
  std::map<std::uint64_t, const GradNode*, std::greater<>> to_come;  // fed by records seen so far
  int seen = 0;
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    for (; !to_come.empty() && to_come.begin()->first > it->first; to_come.erase(to_come.begin())) {
      if (++seen > kMostSeen) return queue_.begin();
      for (const Meta& input : to_come.begin()->second->inputs)
        if (input && input->producer)
          to_come.emplace(input->producer->sequence, input->producer.get());
    }
    const bool is_fed = !to_come.empty() && to_come.begin()->first == it->first;
    if (!is_fed && !it->second.in_flight()) return it;
    to_come.emplace(it->first, it->second.record.get());
  }
  return queue_.begin();
}

std::vector<Tensor> BackwardPass::awaited() const {
  std::vector<Tensor> all;
  for (const Terms& terms : queue_.begin()->second.gradients) terms.list(all);
  return all;
}

std::vector<Tensor> BackwardPass::awaited_by_leaves() const {
  std::vector<Tensor> all;
  for (const auto& [leaf, terms] : late_) {
    if (!for_targets_ && leaf->gradient.defined()) all.push_back(leaf->gradient);
    terms.list(all);
  }
  return all;
}

void BackwardPass::settle_leaves(bool in_place) {
  std::vector<Meta> complete;
  std::erase_if(late_, [&](auto& late) {
    auto& [leaf, terms] = late;
    const Tensor& sum = leaf->gradient;
    if (!for_targets_ && !in_place && sum.defined() && sum.in_flight()) return false;
    settle_leaf(*leaf, terms);
    if (!for_targets_) complete.push_back(leaf);
    return true;
  });
  for (const Meta& leaf : complete) tell_accumulated(*leaf);
}

void BackwardPass::settle_leaf(GradMeta& leaf, Terms& terms) {
  Tensor own = hooked(leaf.hooks, 0, terms.sum());
  if (!leaf.hooks.empty()) own = fit_to_leaf(std::move(own), leaf);
  if (!for_targets_) return add_to_gradient(leaf, std::move(own));
  for (Target& target : targets_)
    if (target.meta.get() == &leaf) target.terms.first = own;
}

bool BackwardPass::settle_collected(const Meta& leaf) {
  if (std::ranges::find(deferred_, leaf, &Deferred::leaf) != deferred_.end()) return false;
  const auto late = std::ranges::find(late_, leaf, [](const auto& entry) { return entry.first; });
  if (late == late_.end()) return true;
  if (late->second.in_flight() || (leaf->gradient.defined() && leaf->gradient.in_flight()))
    return false;
  Terms terms = std::move(late->second);
  late_.erase(late);
  settle_leaf(*leaf, terms);
  tell_accumulated(*leaf);
  return true;
}

void BackwardPass::complete_leaves() {
  std::uint64_t next = queue_.empty() ? 0 : queue_.begin()->first;
  if (arriving_) next = std::max(next, current_->sequence);  // has not passed its gradient on yet
  collected_.ran_down_to(next, [this](const Meta& leaf) { return settle_collected(leaf); });
}

Task<void> BackwardPass::step() {
  if (queue_.empty()) {
    run_deferred();
    return {};
  }
  let_go();
  Waiting waiting = std::move(queue_.extract(next()).mapped());
  current_ = std::move(waiting.record);
  turn_.to(current_->module);
  place_.emplace(*current_);
  std::vector<Tensor> gradients;
  for (Terms& terms : waiting.gradients) {
    gradients.push_back(terms.sum());
    set_origin_of(gradients.back(), current_->origin);
    require_finite(gradients.back(), "a gradient arriving at", current_->name(), current_->module);
  }
  run_hooks(gradients);
  for (Target& target : targets_)
    if (target.meta && target.meta->producer == current_)
      target.terms.first = gradients[static_cast<std::size_t>(target.meta->output)];
  if (for_targets_ && !needed_.contains(current_.get())) {
    current_ = nullptr;  // not needed: not run, nothing freed
    return {};
  }
  CS_REQUIRE(!grad_enabled() || current_->records_backward(), current_->name(),
             ": its gradient cannot be differentiated again");
  CS_REQUIRE(!current_->released, current_->name(),
             ": backward runs through it a second time, but the first freed what it saved; pass "
             "retain_graph to the first");
  deferred_before_ = deferred_.size();
  Task<void> task = current_->awaited_backward(gradients, *this);
  if (!task) current_->backward(gradients, *this);
  if (arriving_) return multiply_arriving();
  return task;
}

void BackwardPass::step_done() {
  if (current_ && !retain_graph_ && current_->release()) current_->released = true;
  settle_arrivals();
  while (deferred_.size() > kMostDeferred) run_oldest_deferred();
  let_go();
  place_.reset();
}

void BackwardPass::run_hooks(std::vector<Tensor>& gradients) const {
  for (std::size_t i = 0; i < gradients.size() && !current_->hooks.empty(); ++i)
    if (gradients[i].defined())
      gradients[i] = hooked(current_->hooks, static_cast<int>(i), std::move(gradients[i]));
  if (for_targets_) return;
  for (const std::weak_ptr<GradMeta>& retaining : current_->retaining) {
    const Meta meta = retaining.lock();
    if (!meta || !gradients[static_cast<std::size_t>(meta->output)].defined()) continue;
    add_to_gradient(*meta, gradients[static_cast<std::size_t>(meta->output)]);
  }
}

std::vector<Tensor> BackwardPass::result() {
  std::vector<Tensor> all;
  for (Target& target : targets_) all.push_back(target.terms.sum());
  return all;
}

bool BackwardPass::needs_grad(int input) const {
  const Meta& meta = current_->inputs[static_cast<std::size_t>(input)];
  return meta && meta->requires_grad && (!for_targets_ || leads_to_target(meta));
}

void BackwardPass::accumulate(int input, Tensor gradient) {
  if (!gradient.defined()) return;
  require_finite(gradient, "a gradient returned by", current_->name(), current_->module);
  arrive(current_->inputs[static_cast<std::size_t>(input)], std::move(gradient));
}

// An output gradient that hooks or a finite guard read must have arrived.
bool BackwardPass::takes_arriving(const Waiting& waiting) const {
  const Terms& terms = waiting.gradients[0];
  if (!terms.first.defined() || !terms.more.empty() || !arrives_by_shards(terms.first))
    return false;
  return takes_arriving(*waiting.record, *terms.first.storage()->gathered);
}

bool BackwardPass::takes_arriving(const GradNode& record, const Gathered& gradient) const {
  if (!may_await_ || for_targets_ || grad_enabled() || guards_finite()) return false;
  if (!record.hooks.empty() || !record.retaining.empty()) return false;
  return record.takes_arriving(gradient, deferred_ns());
}

bool BackwardPass::multiplies_sooner(int input, const Gathered& gradient) const {
  const Meta& meta = current_->inputs[static_cast<std::size_t>(input)];
  if (!needs_grad(input) || !meta->producer || meta->output != 0) return false;
  const std::uint64_t sequence = meta->producer->sequence;
  if (outer_ != nullptr && sequence <= since_) return false;
  return !queue_.contains(sequence) && takes_arriving(*meta->producer, gradient);
}

// The sum is produced in its producer's gradient_layout(); nothing may see it in another.
bool BackwardPass::may_be_summed(const Meta& meta, const Product& product) const {
  if (!may_await_ || for_targets_ || grad_enabled() || guards_finite()) return false;
  if (!meta->producer || (outer_ != nullptr && meta->producer->sequence <= since_)) return false;
  const GradNode& behind = *meta->producer;
  if (behind.gradient_layout() == nullptr || !behind.hooks.empty() || !behind.retaining.empty())
    return false;
  return may_send_rows(product.dy, product.overlap);
}

void BackwardPass::accumulate_product(int input, const Tensor& dy, const Tensor& weight,
                                      Overlap overlap) {
  if (!needs_grad(input)) return;
  const Meta& meta = current_->inputs[static_cast<std::size_t>(input)];
  Product product{dy, weight, overlap, current_->module};
  if (dy.in_flight() && may_await_ && input == 0 && arrives_by_shards(dy)) {
    arriving_ = std::move(product);
  } else if (may_be_summed(meta, product)) {
    Waiting& waiting = queue_[meta->producer->sequence];
    waiting.record = meta->producer;
    waiting.products.push_back(std::move(product));
  } else {
    accumulate(input, matmul(dy, weight));
  }
}

void BackwardPass::defer_rows_product(int input, const Tensor& dy, const Tensor& x) {
  push_deferred(
      input, [=] { return matmul_rows(dy, x); }, rows_product_ns(dy, x));
}

// The record has accepted dy in flight (takes_arriving).
Task<void> BackwardPass::multiply_arriving() {
  const Product& product = *arriving_;
  const RowFactor factor = gradient_factor(product.dy, product.weight);
  const auto choice = arriving_choice(factor, Overlap::Always, 0);
  Tensor gradient;
  if (choice) {
    RowProduct rows({factor});
    const Meanwhile meanwhile = [this, ns = choice->exposed_ns, module = product.module] {
      run_deferred_for(ns, deferred_before_);
      turn_.to(module);
    };
    Task<Tensor> sum = rows_as_they_arrive(rows, choice->dim, meanwhile);
    gradient = co_await std::move(sum);
  } else {  // what ran in between has awaited dy
    gradient = matmul(product.dy, product.weight);
  }
  arriving_.reset();
  accumulate(0, std::move(gradient));
  for (auto& [input, compute] : std::exchange(after_arriving_, {}))
    push_deferred(input, std::move(compute), 0);
}

Task<void> BackwardPass::sum_products() {
  Waiting& waiting = queue_.find(next()->first)->second;
  const std::vector<Product> products = std::exchange(waiting.products, {});
  std::vector<RowFactor> factors;
  Overlap overlap = Overlap::Always;
  for (const Product& p : products) {
    factors.push_back(gradient_factor(p.dy, p.weight));
    overlap = std::min(overlap, p.overlap);
  }
  const Layout& target = *waiting.record->gradient_layout();
  std::optional<RowChoice> choice;
  if (waiting.gradients[0].empty() && target.ndim() == 1)
    choice = sum_choice(factors, target[0], overlap, deferred_ns());
  std::optional<RowProduct> rows;
  if (choice) {
    turn_.to(products.front().module);
    rows.emplace(factors);
  }
  if (!rows || !rows->is_sum()) {
    for (const Product& p : products) {
      turn_.to(p.module);
      waiting.gradients[0].add_term(matmul(p.dy, p.weight));
    }
    co_return;
  }
  const Meanwhile meanwhile = [this, ns = choice->exposed_ns] {
    run_deferred_for(ns, deferred_.size());
    pause();
  };
  Task<Tensor> sum = rows_summed(*rows, choice->dim, choice->pieces, meanwhile);
  Tensor gradient = co_await std::move(sum);
  waiting.gradients[0].add_term(std::move(gradient));
}

std::int64_t BackwardPass::deferred_ns() const {
  return std::accumulate(deferred_.begin(), deferred_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Deferred& d) { return sum + d.ns; });
}

void BackwardPass::run_deferred_for(std::int64_t ns, std::size_t count) {
  for (; count > 0 && ns > 0 && !deferred_.empty(); --count) {
    ns -= deferred_.front().ns;
    run_oldest_deferred();
  }
}

void BackwardPass::hold(std::uint64_t record, std::shared_ptr<void> held) {
  if (outer_ != nullptr) return outer_->hold(record, std::move(held));
  held_.emplace_back(record, std::move(held));
}

void BackwardPass::let_go() {
  const auto is_over = [this](const auto& held) {
    if (queue_.empty() || queue_.begin()->first < held.first) return true;
    const auto& [record, waiting] = *queue_.begin();
    return record == held.first && waiting.products.empty();
  };
  std::erase_if(held_, is_over);
}

void BackwardPass::end() {
  collected_.end();
  held_.clear();
}

void BackwardPass::run_deferred() {
  while (!deferred_.empty()) run_oldest_deferred();
}

void BackwardPass::defer(int input, std::function<Tensor()> compute) {
  push_deferred(input, std::move(compute), 0);
}

void BackwardPass::push_deferred(int input, std::function<Tensor()> compute, std::int64_t ns) {
  if (!needs_grad(input)) return;
  const Meta& meta = current_->inputs[static_cast<std::size_t>(input)];
  // Only for a distributed leaf: no record waits for it, and there are collectives to overlap with.
  if (meta->producer || !meta->spec) {
    if (arriving_) return void(after_arriving_.emplace_back(input, std::move(compute)));
    return accumulate(input, compute_for(meta, compute));
  }
  deferred_.push_back({meta, std::move(compute), current_->module, current_->name(), ns});
}

// Terms that have arrived, but are not in the bucket yet, would be put over the one computed there.
bool BackwardPass::has_arrived(const Meta& leaf) const {
  const auto is_of = [&](const auto& entry) { return entry.first == leaf; };
  return std::ranges::any_of(arrived_, is_of) ||
         (outer_pass_ != nullptr && outer_pass_->has_arrived(leaf));
}

// Computes a leaf's gradient, directly into its bucket where that is free.
Tensor BackwardPass::compute_for(const Meta& leaf, const std::function<Tensor()>& compute) const {
  const auto collector = leaf->collector.lock();
  if (!collector || !adds_to_leaves_ || grad_enabled() || !leaf->hooks.empty() || has_arrived(leaf))
    return compute();
  const OutputPlace place(collector->place(*leaf));
  return compute();
}

void BackwardPass::run_oldest_deferred() {
  Deferred deferred = std::move(deferred_.front());
  deferred_.pop_front();
  turn_.to(deferred.module);
  Tensor gradient = compute_for(deferred.leaf, deferred.compute);
  require_finite(gradient, "a gradient returned by", deferred.operation, deferred.module);
  arrive(deferred.leaf, std::move(gradient));
  deferred.compute = nullptr;
  settle_arrivals();
}

}  // namespace coshard
