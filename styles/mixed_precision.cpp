// What a sharded module's policy casts: its inputs and its outputs.
#include <algorithm>

#include <coshard/dtensor/ops/ops.h>
#include "styles/shard_group.h"

namespace coshard {
namespace {

bool differs(const Tensor& x, const std::optional<DType>& wanted) {
  return wanted && x.defined() && is_floating(x.dtype()) && x.dtype() != *wanted;
}

}  // namespace

void require_floating(const MixedPrecisionPolicy& policy) {
  const auto check = [](const char* name, const std::optional<DType>& dtype) {
    CS_REQUIRE(!dtype || is_floating(*dtype), "fully_shard: ", name, " of mp_policy is ", *dtype,
               "; it must be f64, f32, bf16 or f16");
  };
  check("param_dtype", policy.param_dtype);
  check("reduce_dtype", policy.reduce_dtype);
  check("output_dtype", policy.output_dtype);
}

bool ShardGroup::casts(const Tensor& input) const {
  const MixedPrecisionPolicy& policy = options_.mp_policy;
  return policy.cast_forward_inputs && differs(input, policy.param_dtype);
}

bool ShardGroup::casts(const Outputs& outputs) const {
  const auto& wanted = options_.mp_policy.output_dtype;
  return std::ranges::any_of(outputs, [&](const Tensor& y) { return differs(y, wanted); });
}

void ShardGroup::cast_inputs(Inputs& inputs) const {
  const auto cast = [this](Tensor& x) {
    if (casts(x) && !x.in_flight()) x = to(x, *options_.mp_policy.param_dtype);
  };
  for (Tensor& x : inputs.args) cast(x);
  for (auto& named : inputs.kwargs) cast(named.second);
}

void ShardGroup::cast_outputs(Outputs& outputs) const {
  const auto& wanted = options_.mp_policy.output_dtype;
  for (Tensor& y : outputs)
    if (differs(y, wanted)) y = to(y, *wanted);
}

}  // namespace coshard
