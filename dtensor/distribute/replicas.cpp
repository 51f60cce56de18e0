#include "dtensor/distribute/replicas.h"

#include <algorithm>

#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
#include "kernels/run.h"
#include "runtime/comm/collective.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

using Hashes = std::vector<std::uint64_t>;

bool has_replicas(const Tensor& x) {
  if (!x.defined() || !x.is_distributed()) return false;
  for (int m = 0; m < x.layout().ndim(); ++m)
    if (x.layout()[m].is_replicate() && x.mesh().size(m) > 1) return true;
  return false;
}

// The values of all ranks along dimension m, concatenated, in flight.
Tensor gathered(const Tensor& mine, const DeviceMesh& mesh, int m) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = mine.numel() * mesh.size(m);
  c.label = "replicas";
  c.unobserved = true;
  c.origin = mine.origin();
  const Tensor all = Tensor::empty(mine.device(), Shape{c.extent}, DType::I64);
  issue_into(mesh.communicator(m), c, mine, all);
  all.set_origin(mine.origin());
  return all;
}

// The tensors of one mesh.
struct MeshReplicas {
  DeviceMesh mesh;
  std::vector<NamedTensor> tensors;
};

std::vector<MeshReplicas> replicas_by_mesh(const std::vector<NamedTensor>& tensors) {
  std::vector<MeshReplicas> parts;
  for (const NamedTensor& each : tensors) {
    if (!has_replicas(each.tensor) || !each.tensor.mesh().contains_this_rank()) continue;
    auto part = std::ranges::find_if(
        parts, [&](const MeshReplicas& known) { return known.mesh == each.tensor.mesh(); });
    if (part == parts.end()) part = parts.insert(part, {each.tensor.mesh(), {}});
    part->tensors.push_back(each);
  }
  return parts;
}

// The mesh position that `place` is compared with: coordinate 0 along replicated dimensions.
std::size_t first_replica_of(std::size_t place, const Layout& layout, const DeviceMesh& mesh) {
  std::size_t first = 0, stride = 1;
  for (int m = mesh.ndim(); m-- > 0; stride *= static_cast<std::size_t>(mesh.size(m))) {
    const auto size = static_cast<std::size_t>(mesh.size(m));
    const std::size_t coordinate = place / stride % size;
    if (!layout[m].is_replicate()) first += coordinate * stride;
  }
  return first;
}

// `hashes`: of all ranks of the mesh, row-major over it.
void compare_replicas(const MeshReplicas& part, const Hashes& hashes) {
  const std::size_t count = part.tensors.size();
  const std::vector<int>& ranks = part.mesh.ranks();
  for (std::size_t t = 0; t < count; ++t) {
    const NamedTensor& each = part.tensors[t];
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      const std::size_t first = first_replica_of(place, each.tensor.layout(), part.mesh);
      const std::uint64_t mine = hashes[place * count + t], other = hashes[first * count + t];
      CS_REQUIRE(mine == other, "replicas differ: ", each.name, ' ', each.tensor, " of rank ",
                 ranks[place], " (hash ", mine, ") differs from that of rank ", ranks[first],
                 " (hash ", other, "); ", each.remedy);
    }
  }
}

}  // namespace

int dim_of(const Tensor& gradient, const DeviceMesh& mesh, int dim) {
  if (!gradient.is_distributed()) return -1;
  const DeviceMesh& own = gradient.mesh();
  if (own == mesh) return dim;
  if (!mesh.contains_this_rank() || !own.contains_this_rank()) return -1;
  for (int m = 0; m < own.ndim(); ++m)
    if (own.size(m) == mesh.size(dim) && &own.communicator(m) == &mesh.communicator(dim)) return m;
  return -1;
}

bool is_whole_along(const Tensor& gradient, const DeviceMesh& mesh, int dim) {
  const int m = dim_of(gradient, mesh, dim);
  return m >= 0 && gradient.layout()[m].is_replicate();
}

namespace {

// Whether its layout says that ranks along the dimension hold the same.
bool is_replicated_along(const Tensor& x, const DeviceMesh& mesh, int dim) {
  const int own = dim_of(x, mesh, dim);
  if ((all_own_along(x) & mark_of(mesh, dim)) != 0) return false;  // each rank has its own
  return own < 0 || x.layout()[own].is_replicate();
}

}  // namespace

std::string name_of_parameter(const Tensor& x, std::size_t number, std::size_t count) {
  const std::string_view name = x.grad_meta() ? x.grad_meta()->name : "";
  if (!name.empty()) return str_cat("parameter '", name, "'");
  const std::string of = count > 0 ? str_cat(" of ", count) : "";
  return str_cat("parameter ", number, of, " (", brief(x), ")");
}

std::shared_ptr<const ReplicaHashes> replica_hashes(const std::vector<Tensor>& parameters,
                                                    const DeviceMesh& mesh, int dim) {
  auto all = std::make_shared<ReplicaHashes>();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& x = parameters[i];
    const bool compares = !x.in_flight() && is_replicated_along(x, mesh, dim);
    all->hashes.push_back(compares ? bits_hash(x) : 0);
    all->names.push_back(name_of_parameter(x, i));
  }
  return all;
}

void take_replicas_of(int source, const std::vector<Tensor>& parameters, const DeviceMesh& mesh,
                      int dim, std::string_view who) {
  CS_REQUIRE(source >= 0 && source < mesh.size(dim), who, ": src_data_rank ", source,
             " is out of range for the ", mesh.size(dim), " ranks along '",
             mesh.names()[static_cast<std::size_t>(dim)], "' of ", mesh);
  if (mesh.size(dim) == 1 || !mesh.contains_this_rank()) return;
  const NoGradGuard no_grad;
  std::vector<std::pair<Tensor, Tensor>> sent;
  for (const Tensor& x : parameters) {
    if (!is_replicated_along(x, mesh, dim)) continue;
    if (const auto recipe = recipe_of(x)) {
      recipe->must_be_alike(mesh, dim);
      continue;
    }
    sent.emplace_back(x, broadcast_along(x.raw_local(), mesh, dim, source, "replicas"));
  }
  for (const auto& [x, received] : sent) {
    received.wait(who);
    x.wait_for_readers(who);
    if (x.local_numel() > 0)
      kernels::run(*x.device(), kernels::Copy{view_of(x.raw_local()), view_of(received)});
    x.mark_written();
  }
}

Task<void> verify_replicas(std::vector<NamedTensor> tensors, CallSite site) {
  const UserCall user(site);
  std::vector<Tensor> landing;
  for (const NamedTensor& each : tensors)
    if (each.tensor.defined()) landing.push_back(each.tensor);
  Task<void> landed = arrival_of(std::move(landing));
  co_await std::move(landed);
  for (const MeshReplicas& part : replicas_by_mesh(tensors)) {
    const auto& device = part.tensors.front().tensor.device();
    require_not_recording(*device, "verify_replicas", "copy to the host");
    Hashes hashes;
    for (const NamedTensor& each : part.tensors) hashes.push_back(bits_hash(each.tensor));
    Tensor all = Tensor::empty(device, Shape{static_cast<std::int64_t>(hashes.size())}, DType::I64);
    device->upload(all.address(), hashes.data(), hashes.size() * sizeof hashes[0]);
    all.set_origin(hashes.size());  // the same on all ranks, from whatever line
    for (int m = part.mesh.ndim(); m-- > 0;) {
      if (part.mesh.size(m) == 1) continue;
      all = gathered(all, part.mesh, m);
      Task<void> arrived = arrival_of(std::vector<Tensor>(1, all));
      co_await std::move(arrived);
    }
    hashes.resize(static_cast<std::size_t>(all.numel()));
    device->download(hashes.data(), all.const_data(), hashes.size() * sizeof hashes[0]);
    compare_replicas(part, hashes);
  }
}

}  // namespace coshard
