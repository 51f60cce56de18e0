#include "dtensor/redistribute/plan.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "runtime/error.h"

namespace coshard {
namespace {

bool cuts(const Placement& p, int dim) {
  return (p.kind == PlacementKind::Shard || p.kind == PlacementKind::StridedShard) && p.dim == dim;
}

// Do the mesh dimensions outside m cut `dim` in the same way in both layouts?
bool outer_cuts_agree(const Layout& a, const Layout& b, int m, int dim) {
  for (int outer = 0; outer < m; ++outer)
    if ((cuts(a[outer], dim) || cuts(b[outer], dim)) && !(a[outer] == b[outer])) return false;
  return true;
}

void check(const Placement& from, const Placement& to) {
  if (!to.is_partial()) return;
  CS_REQUIRE(from.is_replicate() && to.reduce != Reduce::Product, "cannot redistribute ", from,
             " to ", to);
}

// Labels outlive every rank, since traces are written at the end; there are few of them.
std::string_view intern(std::string text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> table;
  const std::lock_guard lock(mutex);
  return *table.insert(std::move(text)).first;
}

StepKind kind_of(const Placement& from, const Placement& to) {
  if (to.is_partial()) return StepKind::Share;
  if (from.is_replicate()) return StepKind::Slice;
  if (from.is_partial()) return to.is_replicate() ? StepKind::AllReduce : StepKind::ReduceScatter;
  return to.is_replicate() ? StepKind::AllGather : StepKind::AllToAll;
}

Counts counts_of(std::int64_t size, int n) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < n; ++i) counts.push_back(chunk_of(size, n, i).size);
  return std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t result = 1;
  for (int i = begin; i < end; ++i) result *= shape[static_cast<std::size_t>(i)];
  return result;
}

// Geometry of a step whose tensor is, with this mesh dimension's cut undone, of local shape
// `whole`.
Collective geometry(const Step& step, const Shape& whole, int n) {
  Collective c;
  c.label = step.label;
  c.reduce = step.from.reduce;
  const int ndim = static_cast<int>(whole.size());
  const auto extent = [&](int d) { return whole[static_cast<std::size_t>(d)]; };
  if (step.kind == StepKind::AllReduce) {
    c.kind = CollectiveKind::AllReduce;
    c.extent = numel(whole);
    return c;
  }
  if (step.kind == StepKind::AllToAll) {
    const int a = step.from.dim, b = step.to.dim;
    const int first = std::min(a, b), second = std::max(a, b);
    c.kind = CollectiveKind::AllToAll;
    c.gather_first = a < b;
    c.outer = product(whole, 0, first);
    c.middle = product(whole, first + 1, second);
    c.inner = product(whole, second + 1, ndim);
    c.extent = extent(a);
    c.scatter_extent = extent(b);
    c.counts = counts_of(extent(a), n);
    c.scatter_counts = counts_of(extent(b), n);
    return c;
  }
  const int dim = step.kind == StepKind::AllGather ? step.from.dim : step.to.dim;
  c.kind =
      step.kind == StepKind::AllGather ? CollectiveKind::AllGather : CollectiveKind::ReduceScatter;
  c.outer = product(whole, 0, dim);
  c.inner = product(whole, dim + 1, ndim);
  c.extent = extent(dim);
  c.counts = counts_of(extent(dim), n);
  return c;
}

std::unique_ptr<RedistributePlan> make_plan(const std::shared_ptr<const Spec>& source,
                                            const Layout& target) {
  auto plan = std::make_unique<RedistributePlan>();
  const DeviceMesh& mesh = source->mesh;
  plan->source = source;
  plan->target = make_spec(mesh, target, source->shape);
  Layout now = source->layout;
  for (const Transition& t : transitions(source->layout, plan->target->layout)) {
    CS_REQUIRE(
        t.from.kind != PlacementKind::StridedShard && t.to.kind != PlacementKind::StridedShard,
        "redistribute: strided shards are not supported: ", t.from, " to ", t.to);
    Step step;
    step.mesh_dim = t.mesh_dim;
    step.from = t.from;
    step.to = t.to;
    step.label = intern(cat(t.from, "->", t.to));
    // A mesh dimension of one rank holds everything: no step communicates.
    const bool alone = mesh.size(t.mesh_dim) == 1;
    step.kind = alone && !t.to.is_partial() ? StepKind::Slice : kind_of(t.from, t.to);
    Layout whole = now;
    whole[t.mesh_dim] = Replicate();
    now[t.mesh_dim] = t.to;
    step.after = make_spec(mesh, now, source->shape);
    if (step.kind != StepKind::Slice && step.kind != StepKind::Share) {
      const Shape& shape = make_spec(mesh, whole, source->shape)->local_shape;
      step.collective = geometry(step, shape, mesh.size(t.mesh_dim));
    }
    plan->steps.push_back(std::move(step));
  }
  return plan;
}

}  // namespace

std::vector<Transition> transitions(const Layout& from, const Layout& to) {
  CS_REQUIRE(from.ndim() == to.ndim(), "redistribute: layout ", to, " has ", to.ndim(),
             " entries, the tensor's ", from, " has ", from.ndim());
  std::vector<Transition> steps;
  Layout now = from;
  for (int m = 0; m < from.ndim(); ++m)
    if (!(from[m] == to[m])) check(from[m], to[m]);
  const auto move = [&](int m, Placement target) {
    if (now[m] == target) return;
    steps.push_back({m, now[m], target});
    now[m] = target;
  };
  // Inner to outer: whatever stands in the way of the target is undone, or turned into it at once.
  for (int m = from.ndim(); m-- > 0;) {
    const bool is_cut = cuts(now[m], now[m].dim);
    if (!is_cut) continue;
    const bool order_kept = outer_cuts_agree(now, to, m, now[m].dim);
    if (now[m] == to[m] && order_kept) continue;
    const bool direct = to[m].is_shard() && now[m].is_shard() && !(now[m] == to[m]) &&
                        outer_cuts_agree(now, to, m, to[m].dim);
    move(m, direct ? to[m] : Replicate());
  }
  // Outer to inner: the rest.
  for (int m = 0; m < from.ndim(); ++m) move(m, to[m]);
  return steps;
}

const RedistributePlan& plan_for(const std::shared_ptr<const Spec>& source, const Layout& target) {
  thread_local std::unordered_map<const Spec*, std::vector<std::unique_ptr<RedistributePlan>>>
      table;
  auto& plans = table[source.get()];
  for (const auto& plan : plans)
    if (plan->target->layout == target) return *plan;
  CS_REQUIRE(target.ndim() == source->mesh.ndim(), "redistribute: layout ", target, " has ",
             target.ndim(), " entries, the mesh ", source->mesh, " has ", source->mesh.ndim(),
             " dimensions");
  const Layout normal = normalize(target, source->shape, "redistribute");
  if (!(normal == target)) return plan_for(source, normal);
  plans.push_back(make_plan(source, target));
  return *plans.back();
}

}  // namespace coshard
