#pragma once
// Marks: bits that say between which ranks data are known to differ (Tensor::marks), one per
// communicator of more than one rank, which all slices of a mesh share. More than 64 communicators:
// the others have none. Rank's thread.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/spec.h>

namespace coshard {

// 0: one rank along the dimension, or a rank outside the mesh.
std::uint64_t mark_of(const DeviceMesh& mesh, int dim);
Communicator& communicator_of(std::uint64_t mark);
// One by one, in an order that all ranks share (bits have none).
std::vector<std::uint64_t> in_common_order(std::uint64_t marks);
// "'tp'", or "'dp', 'tp'" of several.
std::string names_of(std::uint64_t marks);

// Without those whose ranks another one of them connects too.
std::uint64_t outermost_of(std::uint64_t marks);

// Those of `marks` that remain where sums, or parameters of each rank's own, cover dimensions with
// these marks: alone, or several together.
std::uint64_t not_covered(std::uint64_t marks, std::uint64_t by);

// Those that belong to a communicator of the world that runs now.
std::uint64_t of_this_world(std::uint64_t marks);
// Those whose communicators connect only ranks that this one, of one bit, does.
std::uint64_t marks_within(std::uint64_t mark);

// Those of `marks` that remain in a DTensor: its layout says what lies within its mesh.
std::uint64_t marks_outside(std::uint64_t marks, const Spec& spec);
// Those of `marks` that a tensor must not have if it is to be read as Replicate along dimension
// `dim`: that differ between ranks along it.
std::uint64_t marks_against(std::uint64_t marks, const DeviceMesh& mesh, int dim);
std::uint64_t marks_against(std::uint64_t marks, const DeviceMesh& mesh, const Layout& layout);
}  // namespace coshard
