#pragma once
// Calls whose output is placed or computed in a way of its own. Rank's thread.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <coshard/dtensor/ops/op.h>

namespace coshard {

// A call with a strategy that gives the first output the first input's layout, if there is one. The
// output may lie in the first input's memory already (OpDef::pointwise).
std::array<Tensor, kMaxOutputs> call_over_first(const OpDef& op, std::span<const Tensor> in,
                                                const Attrs& attrs);

// For errors of an in-place call: "sub_".
std::string name_in_place(const OpDef& op);

// A call whose output is computed in parts by a schedule, of an operator with one output that saves
// no output. Redistributes the inputs as a plain call does, but waits for none of them.
class OpCall {
 public:
  // Error{BadInput}: as `call`; also a mix of plain tensors and DTensors.
  OpCall(const OpDef& op, std::vector<Tensor> in, const Attrs& attrs = {});
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

  const std::vector<Tensor>& used() const { return used_; }  // the inputs, redistributed
  bool absent() const { return absent_; }                    // this rank is not in the mesh
  // The output's spec (null for a plain tensor) and local shape.
  const std::shared_ptr<const Spec>& spec() const { return out_spec_; }
  const Shape& local_shape() const { return out_shape_; }
  DType dtype() const { return out_dtype_; }
  OpContext context() const { return {used_, attrs_}; }
  std::uint64_t origin() const;
  std::uint64_t marks() const;  // the output's (Tensor::origin)
  // Returns `out` as the call's output: with its spec, on the tape.
  Tensor record(Tensor out);

 private:
  const OpDef& op_;
  Attrs attrs_;
  std::vector<Tensor> in_, used_;
  bool absent_ = false;
  std::shared_ptr<const Spec> out_spec_;
  Shape out_shape_;
  DType out_dtype_ = DType::F32;
  std::shared_ptr<GradNode> record_;  // null: nothing to differentiate
};

}  // namespace coshard
