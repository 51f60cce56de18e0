#pragma once
// Partial values: how a value is split into one per rank, and what share of its gradient each gets.
// A Partial over several mesh dimensions is reduced over one after the other, the last first.
#include <optional>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// Splits a value that every rank has into terms that reduce to it: the first rank of a P(sum) or
// P(product) keeps the value, the others hold 0 or 1; for other reductions every rank keeps it.
// Returns what this rank holds instead; nullopt: the value itself. No communication.
std::optional<double> partial_in_place_of_value(const DeviceMesh& mesh, const Layout& layout);

// The gradient of this rank's partial value. `gradient`: this rank's part of the value's gradient;
// `term`: the Partial itself, off the tape, undefined unless an entry of `layout` is min, max or
// product.
//   P(sum):         the whole gradient
//   P(avg):         1/n of it
//   P(min), P(max): where this rank holds the extreme, shared evenly among ranks that do
//   P(product):     times the other ranks' values
//   Moves:          one all_gather per min, max or product, and the reduction of the Partials after
//                   it
Tensor gradient_of_partial(const Tensor& gradient, const Tensor& term, const DeviceMesh& mesh,
                           const Layout& layout);
// Whether gradient_of_partial needs `term`.
bool gradient_needs_partial(const Layout& layout);

// Whether both have the same shards; Replicate and Partial count as equal. A gradient's layout and
// its value's must satisfy this, so that their local shapes agree.
bool same_shards(const Layout& a, const Layout& b);

}  // namespace coshard
