#pragma once
// User-defined operators, and custom sharding rules for built-in ones.
//
// An operator is an OpDef: data that defines what it computes and how it may be sharded. Call it
// with `call` or `call1`, on plain tensors or DTensors, like a built-in one; dispatch chooses the
// cheapest strategy for its inputs' layouts and redistributes inputs where needed.
//
//   infer     checks the shapes and dtypes of logical inputs and returns those of logical outputs
//   rule      one axis letter per dimension of each input and output, as in einsum. Sharding an
//             axis that an output has shards that output; an axis that only inputs have is
//             contracted, and sharding it gives a Partial; '.' is never sharded. elementwise_rule
//             and same_as_first are rule and infer of an elementwise function.
//   forward   computes this rank's part: `c.in` are local tensors that are ready, c.make(i) is
//             output i, c.offset(i, dim) is where this rank's shard of input i begins.
//   backward  is written with operators, on logical tensors; redistributes are implicit.
//             c.sink.needs_grad(i), c.sink.accumulate(i, gradient). Null: not differentiable.
//             accumulate(i, {}): not differentiable in input i.
//
// The attributes of a call, its arguments other than tensors, are a struct that you define: pass
// call1(op, {x}, ClipAttrs{2}) and read attrs.as<ClipAttrs>() in any of these functions (attrs.h).
// Attributes of built-in operators: operator_attrs.h.
//
// infer and forward are required. Error{BadInput}: a rule without an axis for each dimension; an
// output whose shape or dtype is not what infer returned; a gradient whose shape or dtype is not
// its input's; no gradient for an input that requires one although every output has a gradient.
// Make the OpDef static: decisions are cached by its address, and the tape calls it later.
//
// examples/own_operator defines an operator with a gradient and replaces a built-in one's rule:
//
//   cs::register_sharding("cumsum", [](std::span<const cs::TensorInfo> in, const cs::Attrs&) { …
//   });
//
// Every rank must register the same rule before it uses that operator on DTensors; otherwise the
// next collective of the mesh fails.
#include <coshard/runtime/language.h>

#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/pointwise.h>
