#pragma once
// An operator of your own, and another sharding rule for one of the library's.
//
// An operator is an OpDef: data that says what it computes and how it may be cut. It is called like
// the library's are, on plain tensors and DTensors alike, with `call` or `call1`; dispatch chooses
// the cheapest way to run it on the layouts at hand and redistributes what has to move.
//
//   infer     checks shapes and dtypes and gives those of the outputs, all of the logical tensors
//   rule      one letter per dimension of each input and output, as in einsum. A letter that an
//             output has may be cut along with it; one that only inputs have is contracted, and
//             cutting it gives a Partial; '.' is never cut. elementwise_rule and same_as_first are
//             rule and infer of a function of one element.
//   forward   computes this rank's part: `c.in` are ready local tensors, c.make(i) is output i.
//             c.offset(i, dim) is where this rank's part of input i begins in the logical tensor.
//   backward  is written with operators, on logical tensors; its redistributes come by themselves.
//             c.sink.wants(i), c.sink.give(i, gradient). Null: not differentiable.
//   flops     for tables of time spent; one_per_element will do
//
// infer and forward are needed. Error{BadInput}: a rule without a letter for each dimension, an
// output of another shape or dtype than infer says, a gradient of another than its input has. Make
// it static: what is decided for it is found by its address, and the tape calls it later.
//
// examples/own_operator has one of each, with its gradient, and replaces the rule of a built-in
// one:
//
//   cs::register_sharding("cumsum", [](std::span<const cs::TensorInfo> in, const cs::Attrs&) { …
//   });
//
// Every rank registers the same, before it uses that operator on DTensors. Where one does not, the
// next collective of the mesh fails.
#include <coshard/dtensor/ops/letters.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/pointwise.h>
