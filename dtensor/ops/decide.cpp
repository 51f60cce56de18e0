// Makes a decision: evaluates the rule, chooses layouts, derives shapes.
#include <algorithm>

#include "dtensor/ops/choose.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/local.h"

namespace coshard {
namespace {

// For an error: a difference that printing two meshes does not show.
std::string_view difference(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.shape() != b.shape() || a.names() != b.names()) return "";
  return a.ranks() != b.ranks() ? " (of different ranks)"
                                : " (with different links: with_links, measure_links)";
}

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
      CS_REQUIRE(mesh == t.mesh(), show_call(op, in), ": inputs lie on different meshes",
                 difference(mesh, t.mesh()),
                 "; what meets belongs on one mesh: from_local(x.to_local(), mesh, layout) puts a "
                 "tensor of a slice on the whole mesh, redistribute(x, mesh, layout) moves one to "
                 "a mesh of other ranks");
    }
  }
  CS_REQUIRE(!mesh.defined() || !plain, show_call(op, in), ": got both plain tensors and DTensors");
  return mesh;
}

// Checks that a user's rule has an axis per dimension.
void require_axes(const OpDef& op, std::span<const std::string> rule,
                  std::span<const TensorInfo> tensors, const char* which) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    CS_REQUIRE(!tensors[i].defined || rule[i] == "*" || rule[i].size() == tensors[i].shape.size(),
               op.name, ": the rule has axes '", rule[i], "' for ", which, ' ', i, " of shape ",
               tensors[i].shape);
}

void require_rule(const OpDef& op, const Rule& rule, std::span<const TensorInfo> in,
                  std::span<const TensorInfo> out) {
  CS_REQUIRE(rule.in.size() == in.size() && rule.out.size() == out.size(), op.name,
             ": the rule has ", rule.in.size(), " inputs and ", rule.out.size(),
             " outputs, but the call has ", in.size(), " and ", out.size());
  require_axes(op, rule.in, in, "input");
  require_axes(op, rule.out, out, "output");
  for (const Strategy& extra : rule.extra)
    CS_REQUIRE(extra.in.size() == in.size() && extra.out.size() == out.size(), op.name,
               ": a strategy of its rule has ", extra.in.size(), " inputs and ", extra.out.size(),
               " outputs, but the call has ", in.size(), " and ", out.size());
}

// The results of user-defined operators are checked, in dispatch.cpp and op_node.cpp.
bool is_ours(const OpDef& op) {
  return std::ranges::find(all_operators(), &op) != all_operators().end();
}

void decide_layouts(Decision& d, const OpDef& op, std::span<const Tensor> in,
                    const DeviceMesh& mesh, const std::vector<TensorInfo>& out_info) {
  const Rule rule = sharding_rule(op, d.in_info, d.attrs);
  require_rule(op, rule, d.in_info, out_info);
  note_rule(op, rule, mesh);
  std::vector<Layout> now;
  for (const Tensor& t : in) now.push_back(t.defined() ? t.layout() : Layout());
  auto choice =
      choose_layouts(rule, d.in_info, now, out_info, {mesh.shape(), mesh.links()}, d.in_place);
  CS_REQUIRE(choice, show_call(op, in), ": no strategy of its sharding rule fits these inputs");
  d.want = std::move(choice->in);
  d.absent = !mesh.contains_this_rank();
  for (std::size_t i = 0; i < in.size(); ++i) {
    d.change.push_back(in[i].defined() && !(in[i].layout() == d.want[i]));
    d.changes = d.changes || d.change.back();
  }
  for (std::size_t i = 0; i < out_info.size(); ++i) {
    d.out_spec[i] = make_spec(mesh, choice->out[i], out_info[i].shape);
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
  d->by_kind = op.reals_by_kind && !has_registered_rule(op);
  d->foreign = !is_ours(op);
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
  CS_REQUIRE(op.infer && op.forward, op.name, ": its OpDef lacks ", op.infer ? "forward" : "infer");
  CS_REQUIRE(!in.empty(), op.name, ": called without tensor inputs");
  const std::vector<TensorInfo> out_info = op.infer(d->in_info, attrs);
  CS_REQUIRE(!out_info.empty() && out_info.size() <= kMaxOutputs, op.name, ": infer returned ",
             out_info.size(), " outputs; an operator has 1 to ", kMaxOutputs);
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
