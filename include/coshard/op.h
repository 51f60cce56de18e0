#pragma once
// Operators of your own, and other sharding rules for the library's.
//
// An operator is an OpDef: data that says what it computes and how it may be sharded. Call it with
// `call` or `call1`, on plain tensors or DTensors, like the library's own; dispatch chooses the
// cheapest way to run it on its inputs' layouts and redistributes what has to move.
//
//   infer     checks shapes and dtypes and returns those of the outputs, all of logical tensors
//   rule      one axis letter per dimension of each input and output, as in einsum. Sharding an
//             axis that an output has shards that output; an axis that only inputs have is
//             contracted, and sharding it gives a Partial; '.' is never sharded. elementwise_rule
//             and same_as_first are rule and infer of an elementwise function.
//   forward   computes this rank's part: `c.in` are local tensors that are ready, c.make(i) is
//             output i, c.offset(i, dim) is where this rank's shard of input i begins.
//   backward  is written with operators, on logical tensors; redistributes are implicit.
//             c.sink.needs_grad(i), c.sink.accumulate(i, gradient). Null: not differentiable.
//             accumulate(i, {}): not differentiable in input i.
//   flops     for tables of time spent; one_per_element will do
//
// What a call is told besides its tensors is a struct of your own: call1(op, {x}, ClipAttrs{2}), and
// attrs.as<ClipAttrs>() in all of these (attrs.h). Those of built-in operators: operator_attrs.h.
//
// infer and forward are required. Error{BadInput}: a rule without an axis for each dimension; an
// output of another shape or dtype than infer returned; a gradient of another than its input has;
// none for an input that requires one, where every output has a gradient.
// Make the OpDef static: decisions are cached by its address, and the tape calls it later.
//
// examples/own_operator has an operator with a gradient, and replaces the rule of a built-in one:
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
