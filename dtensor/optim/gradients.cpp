// Reduces gradients together: one bucketed all_reduce for each communicator, dtype and reduction.
#include <algorithm>

#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/local.h"
#include "dtensor/optim/gradients.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"
#include "runtime/coro/user_call.h"
#include "runtime/interned_text.h"

namespace coshard {
namespace {

// Gradients that lie back to back in one buffer while they are reduced.
struct GradientBucket {
  Communicator* communicator;
  DType dtype;
  Reduce reduce;
  std::vector<Tensor> parameters;
  // Each gradient's spec and marks once it is reduced.
  std::vector<std::shared_ptr<const Spec>> after;
  std::vector<std::uint64_t> marks;
};

void put_gradient(std::vector<GradientBucket>& buckets, Communicator& communicator, Reduce reduce,
                  const Tensor& parameter, std::shared_ptr<const Spec> after, std::uint64_t marks) {
  if (const StepGraph* step = StepGraph::recording())
    step->require_met(parameter.grad_meta(), "a sum of gradients");
  const DType dtype = parameter.grad().dtype();
  auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const GradientBucket& b) {
    return b.communicator == &communicator && b.dtype == dtype && b.reduce == reduce;
  });
  if (bucket == buckets.end())
    bucket = buckets.insert(buckets.end(), {&communicator, dtype, reduce, {}, {}, {}});
  bucket->parameters.push_back(parameter);
  bucket->after.push_back(std::move(after));
  bucket->marks.push_back(marks);
}

// Packs and reduces the gradients, and makes each a view into the bucket, in flight.
Tensor reduce_bucket(const GradientBucket& bucket) {
  std::int64_t total = 0;
  for (const Tensor& p : bucket.parameters) total += p.grad().local_numel();
  const Tensor packed =
      Tensor::empty(bucket.parameters.front().device(), Shape{total}, bucket.dtype);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const Tensor g = bucket.parameters[i].grad();
    const Shape& shape = g.local_shape();
    const Tensor view = packed.view_as(shape, row_major(shape), offset, bucket.after[i]);
    kernels::run(*packed.device(),
                 kernels::Copy{view_of(view.raw_local()), view_of(g.raw_local())});
    offset += g.local_numel();
    view.set_marks(bucket.marks[i]);
    replace_grad(bucket.parameters[i], view);
  }
  issue_all_reduce(
      *bucket.communicator, bucket.reduce, packed,
      {"gradients", order_to_compare(bucket.parameters), shapes_to_compare(bucket.parameters)});
  return packed;
}

bool is_partial(const Tensor& gradient) {
  return gradient.defined() && gradient.is_distributed() && gradient.layout().has_partial();
}

// Whether the gradient is still to be reduced along dimension m of its own mesh.
bool waits_for_sum(const Tensor& parameter, int m) {
  const Tensor g = parameter.grad();
  return is_partial(g) && m < g.mesh().ndim() && g.layout()[m].is_partial();
}

// A gradient that was given by set_grad may be Partial where its parameter is sharded: a
// reduce_scatter. The result, in flight; undefined if the gradient is no such one.
Tensor scattered(const Tensor& parameter) {
  const Tensor g = parameter.grad();
  if (!is_partial(g)) return {};
  Layout layout = g.layout();
  bool scatters = false;
  for (int m = 0; m < layout.ndim(); ++m) {
    if (!layout[m].is_partial()) continue;
    const Placement& own = parameter.layout()[m];
    scatters = scatters || own.is_sharded();
    layout[m] = own.is_partial() ? Replicate() : own;
  }
  if (!scatters) return {};
  if (const StepGraph* step = StepGraph::recording())
    step->require_met(parameter.grad_meta(), "a sum of gradients");
  replace_grad(parameter, redistribute_raw(g, layout));
  return parameter.grad();
}

void gather_partial(std::vector<GradientBucket>& buckets, const Tensor& parameter, int m) {
  const Tensor g = parameter.grad();
  Layout layout = g.layout();
  const Reduce reduce = layout[m].reduce;
  layout[m] = Replicate();
  auto after = make_spec(g.mesh(), layout, g.shape());
  if (g.mesh().size(m) == 1 || !g.mesh().contains_this_rank())
    return replace_grad(parameter, g.with_spec(after));
  put_gradient(buckets, g.mesh().communicator(m), reduce, parameter, std::move(after), g.marks());
}

// Whether the reduction of sums is the sum of the reductions.
bool adds_up(Reduce reduce) { return reduce == Reduce::Sum || reduce == Reduce::Avg; }

// The other world ranks that differ from this one only in dimension `dim` of `mesh`.
std::vector<int> others_along(const DeviceMesh& mesh, int dim) {
  int stride = 1;
  for (int d = mesh.ndim() - 1; d > dim; --d) stride *= mesh.size(d);
  const auto& ranks = mesh.ranks();
  const auto here = std::ranges::find(ranks, mesh.world().rank()) - ranks.begin();
  const int mine = mesh.local_rank(dim);
  std::vector<int> others;
  for (int i = 0; i < mesh.size(dim); ++i)
    if (i != mine) others.push_back(ranks[static_cast<std::size_t>(here + (i - mine) * stride)]);
  return others;
}

}  // namespace

void check_replicas_along(std::string_view who, const Tensor& gradient, std::size_t index,
                          const DeviceMesh& mesh, int dim, int summed) {
  if (!gradient.is_distributed() || !gradient.mesh().contains_this_rank()) return;
  const std::vector<int> reduced = others_along(mesh, dim);
  for (int m = 0; m < gradient.mesh().ndim(); ++m) {
    const Placement& placement = gradient.layout()[m];
    if (m == summed || placement.is_replicate()) continue;
    CS_REQUIRE(!placement.is_partial() || adds_up(placement.reduce) || gradient.mesh().size(m) == 1,
               who, ": the gradient of parameter ", index, " is ", describe(gradient), ", and ",
               placement, " of sums is not the sum of each; call reduce_gradients first");
    for (const int rank : others_along(gradient.mesh(), m))
      CS_REQUIRE(std::ranges::find(reduced, rank) == reduced.end(), who, " along '",
                 mesh.names()[static_cast<std::size_t>(dim)], "' of ", mesh,
                 ": the gradient of parameter ", index, " is ", describe(gradient), ", so ranks ",
                 mesh.world().rank(), " and ", rank,
                 " hold different parts of it; pass a dimension along which it is replicated");
  }
}

Noted without_gradient(std::string_view did, const Tensor& parameter, std::size_t index,
                       std::size_t count) {
  const std::string_view name = parameter.grad_meta() ? parameter.grad_meta()->name : "";
  const std::string named = name.empty() ? " " : str_cat(" '", name, "', ");
  return {interned(str_cat(did, " with no gradient for", named, "parameter")), "of", index, count};
}

Tensor rows_to_update(const Tensor& parameter, const char* who) {
  if (parameter.is_contiguous()) return parameter;
  require_not_recording(*parameter.device(), who, "copy a parameter that is not contiguous");
  return copy_of(parameter);
}

Task<void> reduce_gradients(Tensors parameters, CallSite site) {
  const UserCall user(site);
  int mesh_dims = 0;
  std::vector<Tensor> shards;
  for (const Tensor& p : parameters) {
    if (Tensor shard = scattered(p); shard.defined()) shards.push_back(std::move(shard));
    if (is_partial(p.grad())) mesh_dims = std::max(mesh_dims, p.grad().mesh().ndim());
  }
  for (int m = mesh_dims - 1; m >= 0; --m) {  // inner dimensions first: sum and max do not commute
    std::vector<GradientBucket> buckets;
    for (const Tensor& p : parameters)
      if (waits_for_sum(p, m)) gather_partial(buckets, p, m);
    std::vector<Tensor> packed;
    for (const GradientBucket& bucket : buckets) packed.push_back(reduce_bucket(bucket));
    Task<void> arrived = arrival_of(std::move(packed));  // even if empty: outside a mesh
    co_await std::move(arrived);
  }
  Task<void> scattered_all = arrival_of(std::move(shards));
  co_await std::move(scattered_all);
}

void all_reduce_gradients(const std::vector<Tensor>& parameters, const DeviceMesh& mesh, int dim,
                          Reduce reduce, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(mesh.defined() && dim >= 0 && dim < mesh.ndim(), "all_reduce_gradients: dimension ",
             dim, " is out of range for mesh ", mesh);
  CS_REQUIRE(reduce == Reduce::Sum || reduce == Reduce::Avg,
             "all_reduce_gradients: reduce must be Sum or Avg");
  if (mesh.size(dim) == 1) return;
  if (!mesh.contains_this_rank()) {  // its gradients are in flight, as on the others
    for (const Tensor& p : parameters) {
      if (!p.grad().defined()) continue;
      p.grad().wait();
      p.set_grad(same_in_flight(p.grad(), Work()));
    }
    return;
  }
  std::vector<GradientBucket> buckets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (const Tensor g = parameters[i].grad(); g.defined())
      check_replicas_along("all_reduce_gradients", g, i, mesh, dim);
    else
      mesh.note(dim, without_gradient("called all_reduce_gradients", parameters[i], i,
                                      parameters.size()));
  }
  const auto is_whole = [&](const Tensor& g) {
    return reduce == Reduce::Sum && is_whole_along(g, mesh, dim);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    if (!p.grad().defined() || is_whole(p.grad())) continue;
    const std::uint64_t marks = marks_once_summed(*p.grad_meta(), p.grad().marks(), mesh, dim,
                                                  reduce, [&] { return name_of_parameter(p, i); });
    put_gradient(buckets, mesh.communicator(dim), reduce, p, p.grad().spec(), marks);
  }
  for (const GradientBucket& bucket : buckets) reduce_bucket(bucket);
}

}  // namespace coshard
