#include <algorithm>
#include <limits>
#include <unordered_set>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/optim/unsummed.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/grad_mode.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// The gradients on one mesh; an undefined mesh: plain gradients. `marks`: of parameters of which
// each rank trains its own (varies).
struct NormPart {
  DeviceMesh mesh;
  std::vector<Tensor> gradients;
  std::uint64_t marks = 0;
};

// A replica counts only on the first rank of its mesh dimension.
bool counted_here(const Tensor& gradient) {
  if (!gradient.is_distributed()) return true;
  for (int m = 0; m < gradient.layout().ndim(); ++m)
    if (gradient.layout()[m].is_replicate() && gradient.mesh().local_rank(m) != 0) return false;
  return gradient.mesh().contains_this_rank();
}

// Over this rank's share: the sum of |g|^p, or (p = 0) the largest |g|; f64 [1].
Tensor own_norm(const NormPart& part, const std::shared_ptr<Device>& device, double p) {
  const auto count = static_cast<std::int64_t>(part.gradients.size());
  if (count == 0) return zeros(device, Shape{1}, DType::F64);
  const Tensor cells = zeros(device, Shape{count}, DType::F64);
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor& gradient = part.gradients[static_cast<std::size_t>(i)];
    if (!gradient.local_numel() || !counted_here(gradient)) continue;
    const Tensor local = local_contiguous(gradient.raw_local());
    kernels::run(*device, kernels::PowSum{local.dtype(), local.local_numel(), local.const_data(), p,
                                          static_cast<double*>(cells.address()) + i});
  }
  return p == 0 ? amax(cells, Dims{0}, true) : sum(cells, Dims{0}, true);
}

// One all_reduce of one number for each dimension of the mesh.
void combine_norm(const NormPart& part, const Tensor& norm, bool largest) {
  for (const std::uint64_t mark : in_common_order(part.marks))
    issue_all_reduce(communicator_of(mark), largest ? Reduce::Max : Reduce::Sum, norm,
                     {"gradient norm"});
  if (!part.mesh.defined() || !part.mesh.contains_this_rank()) return;
  for (int m = 0; m < part.mesh.ndim(); ++m)
    if (part.mesh.size(m) > 1)
      issue_all_reduce(part.mesh.communicator(m), largest ? Reduce::Max : Reduce::Sum, norm,
                       {"gradient norm"});
}

// Whether a DataParallel keeps the gradient, in memory that the next backward overwrites.
bool is_in_bucket(const Tensor& parameter) {
  return parameter.grad_meta()->summed && !parameter.grad_meta()->collector.expired();
}

// In place only in a bucket; any other gradient that the program holds keeps its values.
Tensor scaled(const Tensor& parameter, const Tensor& factor) {
  const Tensor gradient = parameter.grad();
  const Tensor local = gradient.raw_local();
  const DType wide = statistic_dtype(local.dtype());
  const Tensor terms = to(local, wide), by = to(factor, wide);
  const bool in_place = is_in_bucket(parameter) && local.is_contiguous();
  if (in_place) local.wait_for_readers("clip_grad_norm");
  const OutputPlace place(in_place ? local : Tensor());
  const Tensor result = to(mul(terms, by), local.dtype());
  if (in_place) local.mark_written();
  Tensor made = local_contiguous(result).with_spec(gradient.spec());
  made.set_marks(gradient.marks());
  return made;
}

std::vector<Tensor> each_once(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> found;
  std::unordered_set<const void*> seen;
  for (const Tensor& p : parameters)
    if (seen.insert(p.id()).second) found.push_back(p);
  return found;
}

// Parameters with a gradient.
std::vector<Tensor> with_gradient(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> found;
  for (const Tensor& p : parameters) {
    if (!p.grad().defined()) continue;
    if (const StepGraph* step = StepGraph::recording())
      step->require_met(p.grad_meta(), "clip_grad_norm");
    found.push_back(p);
  }
  return found;
}

// Where each rank trains its own, all take part, with a gradient or without.
std::vector<NormPart> parts_of(const std::vector<Tensor>& parameters) {
  std::vector<NormPart> parts;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    const std::uint64_t own = outermost_of(own_along(parameter));
    if (!gradient.defined() && own == 0) continue;
    const DeviceMesh mesh = parameter.is_distributed() ? parameter.mesh() : DeviceMesh();
    auto part = std::ranges::find_if(parts, [&](const NormPart& known) {
      return known.mesh.defined() == mesh.defined() && (!mesh.defined() || known.mesh == mesh) &&
             known.marks == own;
    });
    if (part == parts.end()) part = parts.insert(part, NormPart{mesh, {}, own});
    if (gradient.defined()) part->gradients.push_back(gradient);
  }
  return parts;
}

// Whether the meshes are disjoint.
bool are_apart(const DeviceMesh& a, const DeviceMesh& b) {
  return std::ranges::none_of(
      a.ranks(), [&](int rank) { return std::ranges::find(b.ranks(), rank) != b.ranks().end(); });
}

// If this rank is outside some parameter's mesh: the ranks of all meshes as a one-dimensional mesh;
// else undefined. All its ranks agree, since meshes that share some ranks are rejected.
DeviceMesh mesh_of_all(const std::vector<Tensor>& parameters) {
  std::vector<DeviceMesh> meshes;
  for (const Tensor& p : parameters)
    if (p.is_distributed() && std::ranges::find(meshes, p.mesh()) == meshes.end())
      meshes.push_back(p.mesh());
  if (std::ranges::all_of(meshes, [](const DeviceMesh& m) { return m.contains_this_rank(); }))
    return {};
  std::vector<int> ranks;
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      CS_REQUIRE(are_apart(meshes[i], meshes[j]), "clip_grad_norm: parameters on ", meshes[j],
                 " and on ", meshes[i],
                 ", which share some ranks but not all; clip them separately");
    ranks.insert(ranks.end(), meshes[i].ranks().begin(), meshes[i].ranks().end());
  }
  const auto count = static_cast<int>(ranks.size());
  return DeviceMesh::from_ranks(meshes.front().world(), std::move(ranks), {count});
}

Tensor sum_of_norms(const std::vector<Tensor>& norms, bool largest) {
  Tensor total = norms.front();
  for (std::size_t i = 1; i < norms.size(); ++i)
    total = largest ? maximum(total, norms[i]) : add(total, norms[i]);
  return total;
}

// f64 [1] each, in flight: one norm per mesh; for disjoint meshes one for all of them.
std::vector<Tensor> norms_of(const std::vector<Tensor>& parameters, const DeviceMesh& all,
                             const std::shared_ptr<Device>& device, double p, bool largest) {
  std::vector<Tensor> norms, apart{zeros(device, Shape{1}, DType::F64)};
  for (const NormPart& part : parts_of(parameters)) {
    const bool joined = all.defined() && part.mesh.defined() && part.marks == 0;
    std::vector<Tensor>& list = joined ? apart : norms;
    list.push_back(own_norm(part, device, largest ? 0 : p));
    list.back().set_origin(origin_of_result(parameters));
    if (!joined) combine_norm(part, list.back(), largest);
  }
  if (!all.defined()) return norms;
  const NormPart joined{all, {}, 0};
  norms.push_back(sum_of_norms(apart, largest));
  norms.back().set_origin(origin_of_result(parameters));
  combine_norm(joined, norms.back(), largest);
  return norms;
}

}  // namespace

Task<Tensor> clip_grad_norm(Tensors parameters, double max_norm, double p, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(max_norm >= 0, "clip_grad_norm: max_norm must not be negative, got ", max_norm);
  CS_REQUIRE(p > 0, "clip_grad_norm: the norm type must be positive, got ", p);
  CS_REQUIRE(!parameters.empty(), "clip_grad_norm: the list of parameters is empty");
  const std::vector<Tensor> listed = each_once(parameters);
  const std::vector<Tensor> counted = with_gradient(listed);
  const DeviceMesh all = mesh_of_all(parameters);
  const std::shared_ptr<Device> device = parameters.front().device();
  const bool any_own =
      std::ranges::any_of(listed, [](const Tensor& p) { return own_along(p) != 0; });
  if (counted.empty() && !all.defined() && !any_own) co_return zeros(device, Shape(), DType::F64);
  Task<void> reduced = reduce_gradients(counted);
  co_await std::move(reduced);
  const NoGradGuard no_grad;
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : counted) gradients.push_back(parameter.grad());
  Task<void> there = arrival_of(std::move(gradients));
  co_await std::move(there);
  compare_gradients(counted, false);
  const bool largest = p == std::numeric_limits<double>::infinity();
  const std::vector<Tensor> norms = norms_of(listed, all, device, p, largest);
  Task<void> summed = arrival_of(norms);
  co_await std::move(summed);
  Tensor norm = sum_of_norms(norms, largest);
  if (!largest) norm = pow(norm, 1 / p);
  norm = view(norm, Shape());
  const Tensor factor = clamp(mul(reciprocal(add(norm, 1e-6)), max_norm), std::nullopt, 1.0);
  for (const Tensor& parameter : counted) replace_grad(parameter, scaled(parameter, factor));
  co_return norm;
}

}  // namespace coshard
