#include "dtensor/ops/row_choice.h"

#include <algorithm>
#include <limits>

#include "dtensor/ops/linear_forecast.h"
#include "dtensor/redistribute/gathered.h"

namespace coshard {
namespace {

using Specs = std::vector<std::shared_ptr<const Spec>>;

// The size of the largest shard.
std::int64_t part_size(const Spec& spec, int dim) {
  const std::int64_t whole = spec.shape[static_cast<std::size_t>(dim)];
  return spec.layout[0].is_shard(dim) ? chunk_of(whole, spec.mesh.size(), 0).size : whole;
}

// With Overlap::Always, an unknown link counts as worth overlapping.
std::optional<Link> link_of(const DeviceMesh& mesh, Overlap overlap) {
  if (overlap == Overlap::Off || mesh.ndim() != 1 || mesh.size() < 2) return std::nullopt;
  const std::optional<Link> link = known_link(mesh, 0);
  return link || overlap == Overlap::Auto ? link : Link();
}

// The matmuls of x, whose rows are its dimension `dim`, with these weights.
OverlapCase case_of(const Spec& x, DType dtype, const Specs& weights, int dim, const Link& link,
                    ScheduleKind kind) {
  const Spec& weight = *weights.front();
  const int ranks = x.mesh.size();
  const auto size = [&](int d) { return x.shape[static_cast<std::size_t>(d)]; };
  std::int64_t batch = 1;
  for (int d = 0; d + 1 < static_cast<int>(x.shape.size()); ++d)
    if (d != dim) batch *= size(d);
  LinearShape shape;
  shape.ranks = ranks;
  shape.rows = kind == ScheduleKind::Reduce  // whose pieces are cut from all rows
                   ? chunk_of(size(dim) * batch, ranks, 0).size
                   : chunk_of(size(dim), ranks, 0).size * batch;
  shape.in = weight.shape[1], shape.out = weight.shape[0];
  const Placement cut = weight.layout[0];
  shape.cut = cut.is_shard(0) ? 0 : cut.is_shard(1) ? 1 : -1;
  shape.dtype = dtype;
  OverlapCase c =
      overlap_case(shape, kind, gemm_model(x.mesh, dtype), link, round_link(x.mesh, link));
  if (weights.size() == 1 || c.rows == 0) return c;
  std::int64_t ns = 0;
  for (const auto& each : weights) {
    const std::int64_t n = part_size(*each, 0), k = part_size(*each, 1);
    ns += c.gemm.ns(c.rows, n, k);
    c.whole_ns += c.gemm.ns(c.ranks * c.rows, n, k);
  }
  c.products = static_cast<std::int64_t>(weights.size());
  c.row_ns_x1024 = std::max<std::int64_t>(1, ns * 1024 / c.rows / c.products);
  return c;
}

std::optional<RowChoice> chosen(const Schedule& schedule, int dim, const DeviceMesh& mesh) {
  if (!schedule) return std::nullopt;
  const bool known = known_link(mesh, 0).has_value();
  return RowChoice{dim, schedule.pieces,
                   known ? schedule.exposed_ns : std::numeric_limits<std::int64_t>::max()};
}

// Each rank adds a share of such a bias to its term. With a sharded one, the operator redistributes
// x or the weight instead, and its product is no sum.
bool has_shares(const Tensor& bias) {
  if (!bias.defined()) return true;
  if (!bias.is_distributed()) return false;
  const Placement& p = bias.layout()[0];
  return p.is_replicate() || p == Placement(Partial(Reduce::Sum));
}

bool is_sum(const RowFactor& f) {
  return f.x.ndim() >= 2 && f.x.layout()[0].is_shard(f.x.ndim() - 1) && f.weight.is_distributed() &&
         f.weight.layout()[0].is_shard(1) && has_shares(f.bias);
}

}  // namespace

std::optional<RowChoice> gather_choice(const Gathered& gathered, const Tensor& weight,
                                       Overlap overlap, std::int64_t meanwhile_ns) {
  const Spec& x = *gathered.spec;
  if (gathered.dim + 1 >= static_cast<int>(x.shape.size()) || !weight.is_distributed())
    return std::nullopt;
  const Placement& cut = weight.layout()[0];
  if (!(cut.is_shard(0) || cut.is_replicate())) return std::nullopt;
  if (gathered.asked && overlap == Overlap::Auto) overlap = Overlap::Always;
  const std::optional<Link> link = link_of(x.mesh, overlap);
  if (!link) return std::nullopt;
  const Specs& together = gathered.weights;
  const bool alone = std::ranges::find(together, weight.spec()) == together.end();
  OverlapCase c = case_of(x, gathered.dtype, alone ? Specs{weight.spec()} : together, gathered.dim,
                          *link, ScheduleKind::Gather);
  c.meanwhile_ns = meanwhile_ns;
  return chosen(gather_schedule(c, overlap), gathered.dim, x.mesh);
}

std::optional<RowChoice> arriving_choice(const RowFactor& factor, Overlap overlap,
                                         std::int64_t meanwhile_ns) {
  const Tensor& x = factor.x;
  if (!arrives_by_shards(x) || x.storage()->gathered->spec != x.spec()) return std::nullopt;
  if (x.storage_offset() != 0 || (x.mesh().contains_this_rank() && !x.is_contiguous()))
    return std::nullopt;
  return gather_choice(*x.storage()->gathered, factor.weight, overlap, meanwhile_ns);
}

bool multiplies_sooner(const Tensor& x, const Layout& target, const InputProducts& products) {
  if (products.overlap == Overlap::Off || products.weights.empty()) return false;
  if (!x.is_distributed() || x.mesh().world().communicator()->gathers_by_shards()) return false;
  std::optional<Gathered> gathered = gathered_to(x, target);
  if (!gathered) return false;
  for (const Tensor& weight : products.weights)
    if (weight.is_distributed()) gathered->weights.push_back(weight.spec());
  return gather_choice(*gathered, products.weights.front(), products.overlap, 0).has_value();
}

std::optional<RowChoice> sum_choice(std::span<const RowFactor> factors, Placement target,
                                    Overlap overlap, std::int64_t meanwhile_ns) {
  const Tensor& x = factors.front().x;
  if (!x.is_distributed()) return std::nullopt;
  const std::optional<Link> link = link_of(x.mesh(), overlap);
  if (!link || !std::ranges::all_of(factors, is_sum)) return std::nullopt;
  const bool reduces = target.is_replicate();
  int dim = 0;
  while (!reduces && dim + 1 < x.ndim() && !target.is_shard(dim)) ++dim;
  if (dim + 1 >= x.ndim()) return std::nullopt;
  Specs weights;
  for (const RowFactor& f : factors) weights.push_back(f.weight.spec());
  OverlapCase c = case_of(*x.spec(), x.dtype(), weights, dim, *link,
                          reduces ? ScheduleKind::Reduce : ScheduleKind::Scatter);
  c.meanwhile_ns = meanwhile_ns;
  if (reduces) return chosen(reduce_schedule(c, overlap), -1, x.mesh());
  return chosen(scatter_schedule(c, overlap), dim, x.mesh());
}

bool may_send_rows(const Tensor& x, Overlap overlap) {
  return x.is_distributed() && link_of(x.mesh(), overlap).has_value();
}

// Uses the largest shard, whose size all ranks know.
std::int64_t rows_product_ns(const Tensor& dy, const Tensor& x) {
  if (!dy.is_distributed() || dy.mesh().ndim() != 1 || !known_link(dy.mesh(), 0)) return 0;
  const int last = dy.ndim() - 1;
  const std::int64_t rows = dy.numel() / std::max<std::int64_t>(1, dy.size(last));
  return gemm_model(dy.mesh(), dy.dtype())
      .ns(part_size(*dy.spec(), last), part_size(*x.spec(), last), rows);
}

}  // namespace coshard
