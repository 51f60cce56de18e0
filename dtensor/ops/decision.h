#pragma once
// A cached decision for one operator on one kind of inputs: the layouts it needs and produces. Made
// once per rank and kind of call, then looked up by value.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <coshard/dtensor/ops/op.h>
#include "dtensor/mesh/bounded_cache.h"

namespace coshard {

struct DecisionInput {
  std::shared_ptr<const Spec> spec;
  Shape shape;  // for a plain tensor
  DType dtype = DType::F32;
  bool defined = false;
};

struct Decision {
  const OpDef* op;
  Attrs attrs;
  bool in_place = false;
  bool by_kind = false;  // also valid for other numbers of the same kinds (OpDef::reals_by_kind)
  std::vector<DecisionInput> inputs;

  std::vector<TensorInfo> in_info;
  std::vector<Layout> want;  // per input; used where `change` says so
  std::vector<bool> change;
  bool changes = false;
  bool absent = false;   // this rank is not in the mesh: nothing runs
  bool foreign = false;  // a user-defined operator: the results of its functions are checked
  int outputs = 1;
  std::array<Shape, kMaxOutputs> out_shape{};  // local
  std::array<DType, kMaxOutputs> out_dtype{};
  std::array<std::shared_ptr<const Spec>, kMaxOutputs> out_spec{};
};

// Error{BadInput}: `infer` rejects the call; plain tensors and DTensors are mixed; two meshes.
// `in_place`: the first input keeps its layout and passes it to the first output, if possible.
std::unique_ptr<Decision> decide(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                                 bool in_place);
// The decision this rank has cached for such a call, or a new one; `held` keeps it alive. Null for
// a mix of plain tensors and DTensors, which is rejected or converted first.
const Decision* decision_for(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                             bool in_place, const CachesHeld& held);
// Whether the program has registered a rule for it.
bool has_registered_rule(const OpDef& op);
// The next collective of the mesh compares the registered rule, so that ranks without it fail
// there; once per operator and mesh.
void note_rule(const OpDef& op, const Rule& rule, const DeviceMesh& mesh);
// For errors: "add: f32[2,3], f32[3]".
std::string show_call(const OpDef& op, std::span<const Tensor> in);

}  // namespace coshard
