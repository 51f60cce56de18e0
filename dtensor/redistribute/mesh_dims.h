#pragma once
// Sets of mesh dimensions, as bits: bit m is mesh dimension m. How one of them shards a tensor
// dimension, as a number.
#include <algorithm>

#include <coshard/dtensor/mesh/placement.h>

namespace coshard {

using MeshDims = unsigned;
constexpr bool has(MeshDims dims, int m) { return (dims >> m & 1U) != 0; }

// Of a sharded placement: 1 for Shard; more for StridedShard, by split and unit.
constexpr std::int64_t sharding_code(const Placement& p) {
  return p.is_shard() ? 1 : 1 + p.split + (static_cast<std::int64_t>(p.unit - 1) << 32);
}
constexpr std::int64_t split_of(std::int64_t code) {
  return std::max<std::int64_t>(1, (code & 0xffffffff) - 1);
}
constexpr std::int64_t unit_of(std::int64_t code) { return (code >> 32) + 1; }

}  // namespace coshard
