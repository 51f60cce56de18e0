#pragma once
// Partial values: how a value is split into one per rank. A Partial over several mesh dimensions is
// reduced over one after the other, the last first.
#include <optional>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/mesh/layout.h>

namespace coshard {

// Splits a value that every rank has into terms that reduce to it: the first rank of a P(sum) or
// P(product) keeps the value, the others hold 0 or 1; for other reductions every rank keeps it.
// Returns what this rank holds instead; nullopt: the value itself. No communication.
std::optional<double> partial_in_place_of_value(const DeviceMesh& mesh, const Layout& layout);

// Whether a gradient depends on the terms: some reduction is neither a sum nor an average.
bool gradient_needs_partial(const Layout& layout);

// Whether both have the same shards; Replicate and Partial count as equal. A gradient's layout and
// its value's must satisfy this, so that their local shapes agree.
bool same_shards(const Layout& a, const Layout& b);

}  // namespace coshard
