#include <coshard/dtensor/distribute/distribute.h>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/mesh/partial.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/redistribute/plan.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Tensor scatter_along(const Tensor& whole, const DeviceMesh& mesh, int m, Placement cut,
                     int source) {
  Communicator& comm = mesh.communicator(m);
  Shape shape = whole.local_shape();
  const auto at = static_cast<std::size_t>(cut.dim);
  std::vector<std::int64_t> counts;
  for (int r = 0; r < comm.size(); ++r)
    counts.push_back(chunk_of(shape[at], comm.size(), r, cut.unit).size);
  const Tensor from = local_contiguous(whole);
  Collective c;
  c.kind = CollectiveKind::Scatter;
  c.root = source;
  c.shape = shape_to_compare(shape);
  c.extent = shape[at];
  for (std::size_t d = 0; d < at; ++d) c.outer *= shape[d];
  for (std::size_t d = at + 1; d < shape.size(); ++d) c.inner *= shape[d];
  shape[at] = counts[static_cast<std::size_t>(comm.rank())];
  c.counts = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  Tensor out = Tensor::empty(whole.device(), shape, whole.dtype());
  c.label = "distribute";
  issue_into(comm, c, from, out);
  return out;
}

// Distributes the source's data: a scatter for one block per rank, a broadcast otherwise.
DTensor sent_from(int source, const Tensor& full, const DeviceMesh& mesh, const Layout& layout) {
  Tensor value = full;
  Layout sent = Layout::filled(mesh.ndim(), Replicate());
  for (int m = 0; m < mesh.ndim(); ++m) {
    const bool scatters = layout[m].is_sharded() && layout[m].split == 1;
    if (scatters) sent[m] = layout[m];
    if (mesh.size(m) == 1) continue;
    value = scatters ? scatter_along(value, mesh, m, layout[m], source)
                     : broadcast_along(value, mesh, m, source, "distribute");
  }
  return value.with_spec(make_spec(mesh, sent, full.local_shape()));
}

DTensor part_of_full(const Tensor& full, const DeviceMesh& mesh, const Layout& layout,
                     std::optional<int> source) {
  auto spec = make_spec(mesh, layout, full.local_shape());
  if (!mesh.contains_this_rank()) {
    const Tensor nothing = Tensor::empty(full.device(), spec, full.dtype());
    if (source && mesh.size() > 1)  // the others send and receive
      nothing.set_in_flight(Work());
    else
      share_pending_work(full, nothing);
    return nothing;
  }
  const Layout whole = Layout::filled(mesh.ndim(), Replicate());
  Tensor value = source ? sent_from(*source, full, mesh, layout)
                        : full.with_spec(make_spec(mesh, whole, full.local_shape()));
  value = redistribute_raw(value, partial_as_replicate(layout));
  if (value.storage()->buffer == full.storage()->buffer || !value.is_contiguous())
    value = copy_later(value);
  if (const auto term = partial_in_place_of_value(mesh, layout)) {
    value = Tensor::empty(full.device(), spec->local_shape, full.dtype());
    kernels::run(*value.device(),
                 kernels::Fill{value.address(), value.dtype(), value.local_numel(), *term});
  }
  value.set_marks(full.marks());
  return value.with_spec(spec);
}

}  // namespace

DTensor issue_distribution(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                           std::optional<int> src_data_rank, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(full.defined(), "distribute_tensor: the tensor is undefined");
  require_layout_of(mesh, placements, "distribute_tensor");
  const Layout layout = normalize(placements, full.shape(), "distribute_tensor");
  if (full.is_distributed()) {
    CS_REQUIRE(full.mesh() == mesh && full.layout() == layout, "distribute_tensor: ", brief(full),
               " already has another layout than ", layout, " on ", mesh,
               "; redistribute it instead");
    return full;
  }
  CS_REQUIRE(full.is_leaf(), "distribute_tensor: ", brief(full), " was made by ",
             full.grad_meta()->producer->name(),
             " and is not a leaf, and distribute_tensor is not differentiable; detach it, or use "
             "from_local and redistribute");
  for (int m = 0; src_data_rank && m < mesh.ndim(); ++m)
    CS_REQUIRE(*src_data_rank >= 0 && *src_data_rank < mesh.size(m),
               "distribute_tensor: src_data_rank ", *src_data_rank, " is out of range for mesh ",
               mesh);
  // Ranks other than the source may pass anything of that shape.
  DTensor part = is_deferred(full)
                     ? cut_later(full, make_spec(mesh, layout, full.shape()),
                                 [mesh, layout](const Tensor& x) {
                                   return part_of_full(x, mesh, layout, std::nullopt);
                                 })
                     : part_of_full(full.detach(), mesh, layout, src_data_rank).detach();
  DTensor out = numbered(std::move(part), Numbered::DTensor);
  if (full.requires_grad()) out.set_requires_grad(true);
  return out;
}

DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                          std::optional<int> src_data_rank, CallSite site) {
  DTensor out = issue_distribution(full, mesh, placements, src_data_rank, site);
  if (!is_deferred(out)) out.wait("distribute_tensor");
  return out;
}

DTensor distribute_tensor(const Tensor& full, const Layout& placements,
                          std::optional<int> src_data_rank, CallSite site) {
  return distribute_tensor(full, DefaultMesh::current("distribute_tensor"), placements,
                           src_data_rank, site);
}

DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, CallSite site) {
  return distribute_tensor(full, mesh, whole_on(mesh), 0, site);
}

DTensor distribute_tensor(const Tensor& full, CallSite site) {
  return distribute_tensor(full, DefaultMesh::current("distribute_tensor"), site);
}

}  // namespace coshard
