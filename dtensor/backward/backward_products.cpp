// The part of a backward pass that overlaps matmuls with collectives: gradients of the inputs of
// linear layers, by the schedules of dtensor/ops/row_schedules.h, and the deferred work they hide.
#include <algorithm>
#include <numeric>
#include <utility>

#include <coshard/dtensor/backward/finite_guard.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/backward/backward_pass.h"
#include "dtensor/ops/products.h"
#include "dtensor/ops/row_choice.h"
#include "dtensor/ops/row_schedules.h"

namespace coshard {

// An output gradient that hooks or a finite guard read must have arrived.
bool BackwardPass::takes_arriving(const Waiting& waiting) const {
  if (!may_await_ || for_targets_ || grad_enabled() || guards_finite()) return false;
  const Terms& terms = waiting.gradients[0];
  if (!terms.first.defined() || !terms.more.empty() || !arrives_by_shards(terms.first))
    return false;
  if (!waiting.record->hooks.empty() || !waiting.record->retaining.empty()) return false;
  return waiting.record->takes_arriving(terms.first, deferred_ns());
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
