// A decision made: the rule asked, the layouts chosen, the shapes that follow from them.
#include "dtensor/ops/choose.h"
#include "dtensor/ops/decision.h"

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

void decide_layouts(Decision& d, const OpDef& op, std::span<const Tensor> in,
                    const DeviceMesh& mesh, const std::vector<TensorInfo>& out_info) {
  const Rule rule = sharding_rule(op, d.in_info, d.attrs);
  CS_REQUIRE(rule.in.size() == in.size() && rule.out.size() == out_info.size(), op.name,
             ": the rule has ", rule.in.size(), " inputs, the call ", in.size());
  std::vector<Layout> now;
  for (const Tensor& t : in) now.push_back(t.defined() ? t.layout() : Layout());
  auto choice =
      choose_layouts(rule, d.in_info, now, out_info, {mesh.shape(), mesh.links()}, d.in_place);
  CS_REQUIRE(choice, show_call(op, in), ": no strategy of its rule leads there");
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
