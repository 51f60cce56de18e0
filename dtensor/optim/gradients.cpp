// Gradients that are still sums: one bucketed all_reduce for each mesh dimension and dtype; and
// their norm.
#include <cmath>
#include <limits>

#include "dtensor/distribute.h"
#include "dtensor/ops/local.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/redistribute/redistribute.h"
#include "dtensor/tape.h"
#include "kernels/run.h"
#include "runtime/coro/executor.h"

namespace coshard {
namespace {

// Gradients that lie back to back in one buffer while they are reduced over one mesh dimension.
struct Bucket {
  DeviceMesh mesh;
  int mesh_dim;
  DType dtype;
  Reduce reduce;
  std::vector<Tensor> parameters;
};

bool waits_for_sum(const Tensor& parameter, int m) {
  const Tensor gradient = parameter.grad();
  return gradient.layout()[m].is_partial() && parameter.layout()[m].is_replicate();
}

std::vector<Bucket> buckets_along(const std::vector<Tensor>& parameters, int m) {
  std::vector<Bucket> buckets;
  for (const Tensor& p : parameters) {
    const Tensor g = p.grad();
    if (!g.defined() || !g.is_distributed() || m >= g.mesh().ndim() || !waits_for_sum(p, m))
      continue;
    const Bucket key{g.mesh(), m, g.dtype(), g.layout()[m].reduce, {p}};
    bool placed = false;
    for (Bucket& b : buckets) {
      placed = b.mesh == key.mesh && b.dtype == key.dtype && b.reduce == key.reduce;
      if (placed) b.parameters.push_back(p);
      if (placed) break;
    }
    if (!placed) buckets.push_back(key);
  }
  return buckets;
}

void copy_into(const Tensor& to, const Tensor& from) {
  kernels::run(to.device()->kind(), kernels::Copy{view_of(to), view_of(from)});
}

// Packs, issues, and makes every gradient a view into the bucket, in flight until somebody needs
// it.
void reduce_bucket(const Bucket& bucket) {
  std::int64_t total = 0;
  for (const Tensor& p : bucket.parameters) total += p.grad().local_numel();
  const Tensor& first = bucket.parameters.front();
  const Tensor packed = Tensor::empty(first.device(), Shape{total}, bucket.dtype);
  std::vector<Tensor> views;
  std::int64_t offset = 0;
  for (const Tensor& p : bucket.parameters) {
    const Tensor g = p.grad();
    Layout layout = g.layout();
    layout[bucket.mesh_dim] = Replicate();
    views.push_back(packed.view_as(g.local_shape(), row_major(g.local_shape()), offset,
                                   make_spec(g.mesh(), layout, g.shape())));
    copy_into(views.back().raw_local(), g.raw_local());
    offset += g.local_numel();
  }
  for (std::size_t i = 0; i < views.size(); ++i) bucket.parameters[i].set_grad(views[i]);
  if (bucket.mesh.size(bucket.mesh_dim) == 1) return;
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.reduce = bucket.reduce;
  c.extent = total;
  c.label = "gradients";
  issue_into(bucket.mesh.communicator(bucket.mesh_dim), c, packed, packed);
}

double local_power_sum(const Tensor& gradient, double p) {
  const Tensor local = local_contiguous(gradient.raw_local());
  double result = 0;
  kernels::run(local.device()->kind(),
               kernels::PowSum{local.dtype(), local.local_numel(), local.data(), p, &result});
  return result;
}

// A replica is counted by the first rank of its mesh dimension only.
bool counted_here(const Tensor& gradient) {
  if (!gradient.is_distributed()) return true;
  for (int m = 0; m < gradient.layout().ndim(); ++m)
    if (gradient.layout()[m].is_replicate() && gradient.mesh().local_rank(m) != 0) return false;
  return true;
}

double combine(double value, const DeviceMesh& mesh, const std::shared_ptr<Device>& device,
               bool largest) {
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (mesh.size(m) == 1) continue;
    const Tensor cell =
        Tensor::from_values(device, {1}, DType::F64, std::span<const double>(&value, 1));
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.reduce = largest ? Reduce::Max : Reduce::Sum;
    c.extent = 1;
    c.label = "gradient norm";
    issue_into(mesh.communicator(m), c, cell, cell);
    value = cell.item();
  }
  return value;
}

void scale_in_place(const Tensor& gradient, double factor) {
  kernels::run(gradient.device()->kind(),
               kernels::Unary{kernels::UnaryOp::MulScalar, gradient.dtype(), gradient.local_numel(),
                              gradient.data(), gradient.data(), factor});
}

// A gradient of its own memory, row-major, so that it can be scaled in place.
Tensor own_gradient(const Tensor& parameter) {
  Tensor g = parameter.grad();
  if (!g.is_contiguous()) {
    g = copy_of(g);
    parameter.set_grad(g);
  }
  return g;
}

}  // namespace

Task<void> reduce_gradients(std::vector<Tensor> parameters) {
  int mesh_dims = 0;
  for (const Tensor& p : parameters)
    if (p.grad().defined() && p.grad().is_distributed())
      mesh_dims = std::max(mesh_dims, p.grad().mesh().ndim());
  for (int m = 0; m < mesh_dims; ++m) {
    const std::vector<Bucket> buckets = buckets_along(parameters, m);
    for (const Bucket& bucket : buckets) reduce_bucket(bucket);
    if (!buckets.empty()) co_await yield();
  }
}

Task<double> clip_grad_norm(std::vector<Tensor> parameters, double max_norm, double p) {
  CS_REQUIRE(max_norm >= 0, "clip_grad_norm: max_norm ", max_norm);
  CS_REQUIRE(p > 0, "clip_grad_norm: norm type ", p);
  Task<void> reduced = reduce_gradients(parameters);
  co_await std::move(reduced);
  const bool largest = p == std::numeric_limits<double>::infinity();
  double shared = 0,
         plain = 0;  // over distributed gradients, and over plain ones, which every rank has
  DeviceMesh mesh;
  std::shared_ptr<Device> device;
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const Tensor g = own_gradient(parameter);
    device = g.device();
    double& into = g.is_distributed() ? shared : plain;
    if (g.is_distributed()) {
      CS_REQUIRE(!mesh.defined() || mesh == g.mesh(),
                 "clip_grad_norm: gradients on different meshes");
      mesh = g.mesh();
      if (!counted_here(g)) continue;
    }
    const double part = local_power_sum(g, largest ? 0 : p);
    into = largest ? std::max(into, part) : into + part;
  }
  if (mesh.defined()) shared = combine(shared, mesh, device, largest);
  const double norm = largest ? std::max(shared, plain) : std::pow(shared + plain, 1 / p);
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) {
    for (const Tensor& parameter : parameters)
      if (parameter.grad().defined()) scale_in_place(parameter.grad(), factor);
  }
  co_return norm;
}

}  // namespace coshard
