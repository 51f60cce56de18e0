#include "dtensor/backward/collected_leaves.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {
namespace {

const RankLocal<std::vector<GradCollector*>> collectors_here;

using Leaves = std::vector<std::pair<std::shared_ptr<GradMeta>, std::uint64_t>>;

bool is_collected(const std::shared_ptr<GradMeta>& meta) {
  return meta && !meta->producer && meta->requires_grad && !meta->collector.expired();
}

// The collected leaves reachable from `root`, each with the oldest record that reads it.
Leaves leaves_behind(const std::shared_ptr<GradMeta>& root) {
  Leaves leaves;
  std::unordered_map<const GradMeta*, std::size_t> known;
  std::unordered_set<const GradNode*> seen;
  std::vector<const GradNode*> unseen;
  const auto meet = [&](const std::shared_ptr<GradMeta>& meta, std::uint64_t record) {
    if (meta && meta->producer && seen.insert(meta->producer.get()).second)
      unseen.push_back(meta->producer.get());
    if (!is_collected(meta)) return;
    const auto [at, is_new] = known.emplace(meta.get(), leaves.size());
    if (is_new) leaves.emplace_back(meta, record);
    std::uint64_t& oldest = leaves[at->second].second;
    oldest = std::min(oldest, record);
  };
  meet(root, std::numeric_limits<std::uint64_t>::max());
  while (!unseen.empty()) {
    const GradNode* record = unseen.back();
    unseen.pop_back();
    for (const auto& input : record->inputs) meet(input, record->sequence);
  }
  return leaves;
}

}  // namespace

CollectorHere::CollectorHere(GradCollector& collector) : collector_(collector) {
  collectors_here->push_back(&collector);
}
CollectorHere::~CollectorHere() { std::erase(*collectors_here, &collector_); }

CollectedLeaves::~CollectedLeaves() {
  for (const auto& collector : begun_) collector->give_up();
}

void CollectedLeaves::find(const Meta& root) {
  if (collectors_here->empty()) return;
  for (GradCollector* collector : *collectors_here) collector->refresh();
  for (auto& [leaf, oldest] : leaves_behind(root))
    due_.push_back({oldest, leaf, leaf->collector.lock()});
  std::ranges::stable_sort(due_, std::greater<>(), &Due::oldest);
  std::vector<std::pair<std::shared_ptr<GradCollector>, std::vector<int>>> reached;
  for (const Due& due : due_) {
    auto known = std::ranges::find(reached, due.collector, [](auto& of) { return of.first; });
    if (known == reached.end()) known = reached.insert(known, {due.collector, {}});
    known->second.push_back(due.leaf->collected_as);
  }
  for (const auto& [collector, leaves] : reached)
    if (collector->begin(leaves)) begun_.push_back(collector);
  std::erase_if(due_, [this](const Due& due) {
    return std::ranges::find(begun_, due.collector) == begun_.end();
  });
}

void CollectedLeaves::ran_down_to(std::uint64_t next,
                                  const std::function<bool(const Meta&)>& settled) {
  for (; done_ < due_.size() && due_[done_].oldest > next; ++done_) {
    const Due& due = due_[done_];
    if (!settled(due.leaf)) return;
    due.collector->complete(due.leaf->collected_as);
  }
}

void CollectedLeaves::end() {
  for (; done_ < due_.size(); ++done_)
    due_[done_].collector->complete(due_[done_].leaf->collected_as);
  for (const auto& collector : ended_ = std::exchange(begun_, {})) collector->end();
}

std::vector<Tensor> CollectedLeaves::awaited() const {
  std::vector<Tensor> all;
  for (const auto& collector : ended_)
    if (Tensor one = collector->awaited(); one.defined()) all.push_back(std::move(one));
  return all;
}

void CollectedLeaves::settle() {
  for (const auto& collector : std::exchange(ended_, {})) collector->settle();
}

}  // namespace coshard
