#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/ops/local.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// Sums of |g|^p (or the largest |g|) of the gradients of one mesh; an undefined mesh: plain ones,
// which every rank has.
struct NormPart {
  DeviceMesh mesh;
  std::shared_ptr<Device> device;
  double value = 0;
};

double local_power_sum(const Tensor& gradient, double p) {
  const Tensor local = local_contiguous(gradient.raw_local());
  double result = 0;
  kernels::run(*local.device(),
               kernels::PowSum{local.dtype(), local.local_numel(), local.data(), p, &result});
  return result;
}

// A replica is counted by the first rank of its mesh dimension only.
bool counted_here(const Tensor& gradient) {
  if (!gradient.is_distributed()) return true;
  for (int m = 0; m < gradient.layout().ndim(); ++m)
    if (gradient.layout()[m].is_replicate() && gradient.mesh().local_rank(m) != 0) return false;
  return gradient.mesh().contains_this_rank();
}

// One all_reduce of one number for each dimension of the mesh.
void combine_norm(NormPart& part, bool largest) {
  if (!part.mesh.defined() || !part.mesh.contains_this_rank()) return;
  for (int m = 0; m < part.mesh.ndim(); ++m) {
    if (part.mesh.size(m) == 1) continue;
    const Tensor cell =
        Tensor::from_values(part.device, {1}, DType::F64, std::span<const double>(&part.value, 1));
    issue_all_reduce(part.mesh.communicator(m), largest ? Reduce::Max : Reduce::Sum, cell,
                     "gradient norm");
    part.value = cell.item();
  }
}

// Not in place: gradients may share memory with each other or with what backward was given.
Tensor scaled(const Tensor& gradient, double factor) {
  const Tensor from = local_contiguous(gradient);
  const Tensor to = Tensor::empty(from.device(), from.local_shape(), from.dtype());
  kernels::run(*from.device(), kernels::Unary{kernels::UnaryOp::MulScalar, from.dtype(),
                                              from.local_numel(), from.data(), to.data(), factor});
  return to.with_spec(gradient.spec());
}

// Those with a gradient, each once.
std::vector<Tensor> with_gradient(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> found;
  for (const Tensor& p : parameters) {
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Tensor& other) { return other.id() == p.id(); });
    if (!known && p.grad().defined()) found.push_back(p);
  }
  return found;
}

NormPart& part_of(std::vector<NormPart>& parts, const Tensor& gradient) {
  const DeviceMesh mesh = gradient.is_distributed() ? gradient.mesh() : DeviceMesh();
  for (NormPart& part : parts)
    if (part.mesh.defined() == mesh.defined() && (!mesh.defined() || part.mesh == mesh))
      return part;
  return parts.emplace_back(NormPart{mesh, gradient.device()});
}

double total_norm(const std::vector<Tensor>& parameters, double p, bool largest) {
  std::vector<NormPart> parts;
  for (const Tensor& parameter : parameters) {
    const Tensor g = parameter.grad();
    NormPart& part = part_of(parts, g);
    if (!counted_here(g)) continue;
    const double own = local_power_sum(g, largest ? 0 : p);
    part.value = largest ? std::max(part.value, own) : part.value + own;
  }
  double total = 0;
  for (NormPart& part : parts) {
    combine_norm(part, largest);
    total = largest ? std::max(total, part.value) : total + part.value;
  }
  return largest ? total : std::pow(total, 1 / p);
}

}  // namespace

Task<double> clip_grad_norm(std::vector<Tensor> parameters, double max_norm, double p) {
  CS_REQUIRE(max_norm >= 0, "clip_grad_norm: max_norm ", max_norm);
  CS_REQUIRE(p > 0, "clip_grad_norm: norm type ", p);
  const std::vector<Tensor> counted = with_gradient(parameters);
  Task<void> reduced = reduce_gradients(counted);
  co_await std::move(reduced);
  const double norm = total_norm(counted, p, p == std::numeric_limits<double>::infinity());
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) co_return norm;
  for (const Tensor& parameter : counted) parameter.set_grad(scaled(parameter.grad(), factor));
  co_return norm;
}

}  // namespace coshard
