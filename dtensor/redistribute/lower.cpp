#include "dtensor/redistribute/lower.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "dtensor/mesh/partial.h"
#include "dtensor/redistribute/issue.h"

namespace coshard {
namespace {

// Labels outlive every rank, since traces are written at the end; there are few of them.
std::string_view intern(std::string text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> table;
  const std::lock_guard lock(mutex);
  return *table.insert(std::move(text)).first;
}

Counts shared_counts(std::vector<std::int64_t> counts) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t result = 1;
  for (int i = begin; i < end; ++i) result *= shape[static_cast<std::size_t>(i)];
  return result;
}

// This rank's position in the mesh, row-major.
int place_in(const DeviceMesh& mesh) {
  int place = 0;
  for (int m = 0; m < mesh.ndim(); ++m) place = place * mesh.size(m) + mesh.local_rank(m);
  return place;
}

// Builds one step of one rank. `group_`: the mesh positions of the communicator's ranks, in order.
class Binding {
 public:
  Binding(ShardMap& shard_map, const DeviceMesh& mesh, const PlanStep& plan)
      : shard_map_(shard_map), mesh_(mesh), plan_(plan), me_(place_in(mesh)) {
    step_.kind = plan.kind;
    step_.dims = plan.dims;
    step_.label = intern(label_of(plan));
    step_.after = make_spec(mesh, plan.to, shard_map.shape());
    step_.collective.label = step_.label;
    step_.collective.shape = shape_to_compare(shard_map.shape());
  }

  Step run() {
    if (!communicates(plan_.kind)) {
      if (plan_.kind == StepKind::Slice) slice();
      if (plan_.kind == StepKind::ReplicateToPartial) share();
      if (plan_.kind == StepKind::ShardToPartial) expand();
      return std::move(step_);
    }
    std::vector<int> dims;
    for (int m = 0; m < mesh_.ndim(); ++m)
      if (has(plan_.dims, m)) dims.push_back(m);
    step_.communicator = &mesh_.communicator(dims);
    group_ = shard_map_.group(me_, plan_.dims);
    if (plan_.kind == StepKind::AllReduce || plan_.kind == StepKind::ReduceScatter) reduction();
    if (plan_.kind == StepKind::AllReduce) {
      step_.collective.kind = CollectiveKind::AllReduce;
      step_.collective.extent = shard_map_.held(plan_.from)[static_cast<std::size_t>(me_)];
    } else if (is_plain(shard_map_, plan_, group_)) {
      plain();
    } else {
      packed();
    }
    return std::move(step_);
  }

 private:
  Region parts(const Layout& layout, int place) { return region_of(shard_map_, layout, place); }
  Region common(int source, int target) {
    return intersect(parts(plan_.from, source), parts(plan_.to, target));
  }
  // Where the part that a rank needs begins in the part it has, if it is one block of that.
  std::optional<Shape> block_of(int place) {
    const auto have = parts(plan_.from, place), want = parts(plan_.to, place);
    Shape begin;
    for (std::size_t d = 0; d < have.size(); ++d) {
      const Ranges& ranges = want[d];
      const bool empty = ranges.empty();
      begin.push_back(empty ? 0 : position_in(have[d], ranges.front().begin));
      const std::int64_t end = empty ? 0 : position_in(have[d], ranges.back().end - 1) + 1;
      if (end - begin.back() != count_of(ranges)) return std::nullopt;
    }
    return begin;
  }
  // A view if it can be one on all ranks, so that all ranks wait for the same.
  void slice() {
    if (numel(shard_map_.shape()) == 0) return;
    step_.is_view = true;
    for (int place = 0; place < mesh_.size() && step_.is_view; ++place) {
      const std::optional<Shape> begin = block_of(place);
      step_.is_view = begin.has_value();
      if (begin && place == me_) step_.begin = *begin;
    }
    if (step_.is_view) return;
    const auto have = parts(plan_.from, me_), want = parts(plan_.to, me_);
    step_.pack = blocks_of(want, have, want);
  }

  void expand() {
    const auto have = parts(plan_.from, me_);
    step_.pack = blocks_of(have, have, parts(plan_.to, me_));
  }

  void share() {
    Layout made = plan_.to;
    for (int m = 0; m < made.ndim(); ++m)
      if (plan_.from[m] == made[m]) made[m] = Replicate();
    const auto term = partial_in_place_of_value(mesh_, made);
    step_.keeps = !term;
    step_.filling = term.value_or(0);
  }

  void reduction() {
    const JointReduce reduction = reduction_of(plan_.from, plan_.dims, mesh_.shape());
    step_.collective.reduce = reduction.reduce;
    step_.divisor = reduction.divisor;
  }

  void plain() {
    const Shape local = make_spec(mesh_, plan_.from, shard_map_.shape())->local_shape;
    Collective& c = step_.collective;
    int gathered = -1, scattered = -1;
    for (int d = 0; d < shard_map_.ndim(); ++d) {
      const auto& have = shard_map_.along(plan_.from, d);
      const auto& want = shard_map_.along(plan_.to, d);
      if (&have == &want) continue;
      const bool grows = (cutting(plan_.from, d) & plan_.dims) == plan_.dims;
      (grows ? gathered : scattered) = d;
    }
    const auto counts = [&](const Layout& layout, int d) {
      std::vector<std::int64_t> counts;
      for (const int place : group_)
        counts.push_back(count_of(shard_map_.along(layout, d)[static_cast<std::size_t>(place)]));
      return shared_counts(std::move(counts));
    };
    const auto total = [](const Counts& counts) {
      std::int64_t sum = 0;
      for (const std::int64_t count : *counts) sum += count;
      return sum;
    };
    const int ndim = shard_map_.ndim();
    if (plan_.kind == StepKind::AllToAll) {
      const int first = std::min(gathered, scattered), second = std::max(gathered, scattered);
      c.kind = CollectiveKind::AllToAll;
      c.gather_first = gathered < scattered;
      c.outer = product(local, 0, first);
      c.middle = product(local, first + 1, second);
      c.inner = product(local, second + 1, ndim);
      c.counts = counts(plan_.from, gathered);
      c.scatter_counts = counts(plan_.to, scattered);
      c.extent = total(c.counts);
      c.scatter_extent = total(c.scatter_counts);
      return;
    }
    const bool gathers = plan_.kind == StepKind::AllGather;
    const int dim = gathers ? gathered : scattered;
    c.kind = gathers ? CollectiveKind::AllGather : CollectiveKind::ReduceScatter;
    c.outer = product(local, 0, dim);
    c.inner = product(local, dim + 1, ndim);
    c.counts = counts(gathers ? plan_.from : plan_.to, dim);
    c.extent = total(c.counts);
    if (gathers) step_.gathered = dim;
  }

  void packed() {
    Collective& c = step_.collective;
    step_.packs = plan_.kind != StepKind::AllGather;
    step_.unpacks = plan_.kind != StepKind::ReduceScatter;
    const auto mine = parts(plan_.from, me_), wanted = parts(plan_.to, me_);
    std::vector<std::int64_t> sent, received;
    for (const int peer : group_) {
      const auto out = common(me_, peer), in = common(peer, me_);
      sent.push_back(numel(out));
      received.push_back(numel(in));
      if (step_.packs) append(step_.pack, blocks_of(out, mine, out, step_.packed));
      if (step_.unpacks) append(step_.unpack, blocks_of(in, wanted, in, step_.unpacked));
      step_.packed += sent.back();
      step_.unpacked += received.back();
    }
    if (plan_.kind == StepKind::AllToAll) {
      c.kind = CollectiveKind::AllToAll;
      c.send_counts = shared_counts(std::move(sent));
      c.recv_counts = shared_counts(std::move(received));
      return;
    }
    const bool gathers = plan_.kind == StepKind::AllGather;
    c.kind = gathers ? CollectiveKind::AllGather : CollectiveKind::ReduceScatter;
    c.extent = gathers ? step_.unpacked : step_.packed;
    c.counts = shared_counts(gathers ? std::move(received) : std::move(sent));
  }

  static void append(StridedBlocks& all, const StridedBlocks& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  ShardMap& shard_map_;
  const DeviceMesh& mesh_;
  const PlanStep& plan_;
  int me_;
  std::vector<int> group_;
  Step step_;
};

}  // namespace

Step lower(ShardMap& shard_map, const DeviceMesh& mesh, const PlanStep& step) {
  return Binding(shard_map, mesh, step).run();
}

}  // namespace coshard
