#pragma once
// What one rank's term of a Partial is: where it comes from when a whole value is split into terms,
// and which share of the value's gradient is its own. A Partial over several mesh dimensions is
// reduced one after the other, the last first.
#include <optional>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// A value that every rank has is split so that its reduction is the value again: the first rank of
// a P(sum) or P(product) keeps it and the others hold 0 or 1; of the rest everybody keeps it. What
// this rank holds in its place; nullopt: the value itself. No communication.
std::optional<double> term_in_place_of_value(const DeviceMesh& mesh, const Layout& layout);

// The gradient of this rank's term. `gradient`: this rank's part of the value's gradient; `term`:
// the Partial itself, off the tape, undefined when no entry of `layout` is min, max or product.
// P(sum): the whole gradient. P(avg): 1/n of it. P(min), P(max): where this rank holds the extreme
// (shared evenly among ranks that hold it together). P(product): times the others' values.
// Collectives: one all_gather per entry that is min, max or product, and what reduces the Partial
// entries after it.
Tensor gradient_of_term(const Tensor& gradient, const Tensor& term, const DeviceMesh& mesh,
                        const Layout& layout);
// Whether that needs the term.
bool gradient_needs_term(const Layout& layout);

// Whether both cut the tensor alike, where Replicate and Partial may stand for each other. So must
// a gradient's layout to its value's, for then this rank's parts have one shape.
bool same_cuts(const Layout& a, const Layout& b);

}  // namespace coshard
