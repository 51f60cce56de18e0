#pragma once
// The tape's record of an operator call, with what its backward needs.
#include <memory>
#include <span>

#include "dtensor/ops/decision.h"

namespace coshard {

// `used`: the inputs as the forward used them; `out`: its outputs.
std::shared_ptr<GradNode> make_op_node(const OpDef& op, const Attrs& attrs,
                                       std::span<const Tensor> used, std::span<const Tensor> out,
                                       const Decision& decision);

}  // namespace coshard
