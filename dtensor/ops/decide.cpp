// Which layouts an operator wants for its inputs: per mesh dimension, the cheapest strategy of its
// rule.
#include <limits>

#include "dtensor/ops/decision.h"
#include "dtensor/redistribute/cost.h"

namespace coshard {
namespace {

// The mesh that all inputs share; undefined when all are plain.
DeviceMesh mesh_of(const OpDef& op, std::span<const Tensor> in) {
  DeviceMesh mesh;
  bool plain = false;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!t.is_distributed()) {
      plain = true;
    } else if (!mesh.defined()) {
      mesh = t.mesh();
    } else {
      CS_REQUIRE(mesh == t.mesh(), show_call(op, in), ": inputs lie on different meshes");
    }
  }
  CS_REQUIRE(!mesh.defined() || !plain, show_call(op, in),
             ": a mixture of plain tensors and DTensors");
  return mesh;
}

// `keep`: only strategies that leave the first input's placement alone and give it to the output.
const Strategy* cheapest(const std::vector<Strategy>& strategies, std::span<const Tensor> in,
                         int mesh_dim, int ranks, bool keep) {
  const Strategy* best = nullptr;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Strategy& strategy : strategies) {
    if (keep && !(strategy.in[0] == in[0].layout()[mesh_dim] && strategy.out[0] == strategy.in[0]))
      continue;
    double cost = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined()) continue;
      const std::int64_t bytes = in[i].numel() * static_cast<std::int64_t>(size_of(in[i].dtype()));
      cost += step_cost(in[i].layout()[mesh_dim], strategy.in[i], bytes, ranks);
    }
    if (cost < best_cost) best = &strategy, best_cost = cost;
  }
  return best;
}

std::vector<Placement> placements_along(std::span<const Tensor> in, int mesh_dim) {
  std::vector<Placement> placements;
  for (const Tensor& t : in) placements.push_back(t.defined() ? t.layout()[mesh_dim] : Replicate());
  return placements;
}

void decide_layouts(Decision& d, const OpDef& op, std::span<const Tensor> in,
                    const DeviceMesh& mesh, const std::vector<TensorInfo>& out_info) {
  const Rule rule = sharding_rule(op, d.in_info, d.attrs);
  CS_REQUIRE(rule.in.size() == in.size() && rule.out.size() == out_info.size(), op.name,
             ": the rule has ", rule.in.size(), " inputs, the call ", in.size());
  d.want.assign(in.size(), Layout());
  std::vector<Layout> out_layout(out_info.size());
  Parts parts;
  for (int m = 0; m < mesh.ndim(); ++m) {
    const int n = mesh.size(m);
    const auto strategies = strategies_of(rule, n, parts, placements_along(in, m));
    const Strategy* best = d.in_place ? cheapest(strategies, in, m, n, true) : nullptr;
    if (!best) best = cheapest(strategies, in, m, n, false);
    CS_REQUIRE(best, show_call(op, in), ": no strategy along mesh dimension ", m);
    for (std::size_t i = 0; i < in.size(); ++i) d.want[i].push_back(best->in[i]);
    for (std::size_t i = 0; i < out_info.size(); ++i) out_layout[i].push_back(best->out[i]);
    if (best->letter) parts[best->letter] *= n;
  }
  d.absent = !mesh.contains_this_rank();
  for (std::size_t i = 0; i < in.size(); ++i) {
    d.change.push_back(in[i].defined() && !(in[i].layout() == d.want[i]));
    d.changes = d.changes || d.change.back();
  }
  for (std::size_t i = 0; i < out_info.size(); ++i) {
    d.out_spec[i] = make_spec(mesh, out_layout[i], out_info[i].shape);
    d.out_shape[i] = d.out_spec[i]->local_shape;
  }
}

}  // namespace

std::unique_ptr<Decision> decide(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                                 bool in_place) {
  auto d = std::make_unique<Decision>();
  d->op = &op;
  d->in_place = in_place;
  d->attrs = attrs;
  for (const Tensor& t : in) {
    DecisionInput key;
    TensorInfo info;
    info.defined = key.defined = t.defined();
    if (t.defined()) {
      key.spec = t.spec();
      key.shape = t.local_shape();
      key.dtype = t.dtype();
      info.shape = t.shape();
      info.dtype = t.dtype();
    }
    d->inputs.push_back(key);
    d->in_info.push_back(info);
  }
  const DeviceMesh mesh = mesh_of(op, in);
  const std::vector<TensorInfo> out_info = op.infer(d->in_info, attrs);
  d->outputs = static_cast<int>(out_info.size());
  for (std::size_t i = 0; i < out_info.size(); ++i) {
    d->out_shape[i] = out_info[i].shape;
    d->out_dtype[i] = out_info[i].dtype;
  }
  d->change.clear();
  if (mesh.defined()) {
    decide_layouts(*d, op, in, mesh, out_info);
  } else {
    d->change.assign(in.size(), false);
  }
  return d;
}

}  // namespace coshard
