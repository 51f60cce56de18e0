#pragma once
// Sets of mesh dimensions, as bits: bit m is mesh dimension m.

namespace coshard {

using MeshDims = unsigned;
constexpr bool has(MeshDims dims, int m) { return (dims >> m & 1U) != 0; }

}  // namespace coshard
