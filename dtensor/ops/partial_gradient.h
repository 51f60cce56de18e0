#pragma once
// What share of the gradient of a value each of its partial values gets (mesh/partial.h).
#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// The gradient of this rank's partial value. `gradient`: this rank's part of the value's gradient;
// `term`: the Partial itself, off the tape, undefined unless an entry of `layout` is min, max or
// product (gradient_needs_partial).
//   P(sum):         the whole gradient
//   P(avg):         1/n of it
//   P(min), P(max): where this rank holds the extreme, shared evenly among ranks that do
//   P(product):     times the other ranks' values
//   Moves:          one all_gather per min, max or product, and the reduction of the Partials after
//                   it
Tensor gradient_of_partial(const Tensor& gradient, const Tensor& term, const DeviceMesh& mesh,
                           const Layout& layout);
}  // namespace coshard
