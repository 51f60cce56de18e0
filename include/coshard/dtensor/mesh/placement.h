#pragma once
// How a tensor is placed along one mesh dimension. A small trivial value: pass it by value, also
// into coroutines. Meaning and text form as in PyTorch: R, S(0), P(sum), _S(0,3); with units
// _S(0,3,64).
#include <cstdint>
#include <ostream>
#include <string_view>

#include <coshard/runtime/comm/communicator.h>

#pragma GCC visibility push(default)
namespace coshard {

enum class PlacementKind : std::uint8_t { Replicate, Shard, StridedShard, Partial };

struct Placement {
  PlacementKind kind = PlacementKind::Replicate;
  Reduce reduce = Reduce::Sum;  // of a Partial
  std::int16_t dim = 0;         // of a shard; may be negative until the layout is normalized
  std::int32_t split = 1;       // of a StridedShard, as is unit
  std::int32_t unit = 1;

  constexpr bool is_replicate() const { return kind == PlacementKind::Replicate; }
  constexpr bool is_partial() const { return kind == PlacementKind::Partial; }
  constexpr bool is_shard() const { return kind == PlacementKind::Shard; }
  constexpr bool is_shard(int d) const { return is_shard() && dim == d; }
  constexpr bool is_strided() const { return kind == PlacementKind::StridedShard; }
  // Whether it shards the tensor, or its dimension d, plain or strided.
  constexpr bool is_sharded() const { return is_shard() || is_strided(); }
  constexpr bool is_sharded(int d) const { return is_sharded() && dim == d; }
  friend constexpr bool operator==(const Placement&, const Placement&) = default;
};

[[noreturn]] void refuse_shard(int dim, std::int64_t split, std::int64_t unit);

// Sharded along tensor dimension `dim` as by torch.chunk: shards of ceil(size/n), the last ones
// smaller or empty. Error{BadInput}: a dim that no tensor has.
constexpr Placement Shard(int dim) {
  const auto stored = static_cast<std::int16_t>(dim);
  if (stored != dim) refuse_shard(dim, 1, 1);
  return {PlacementKind::Shard, Reduce::Sum, stored, 1, 1};
}
// Split into `split` chunks, each of which is sharded over n ranks; rank i concatenates the i-th
// shard of every chunk (PyTorch's _StridedShard). Shards are made of whole units of `unit`
// positions, such as the columns of a head, from the beginning of each chunk; StridedShard(dim, 1,
// unit) is a Shard of whole units. Error{BadInput}: as Shard; split or unit below 1 or above
// 2^31-1.
constexpr Placement StridedShard(int dim, int split, std::int64_t unit = 1) {
  const auto stored = static_cast<std::int16_t>(dim);
  const auto units = static_cast<std::int32_t>(unit);
  if (stored != dim || split < 1 || unit < 1 || units != unit) refuse_shard(dim, split, unit);
  return {PlacementKind::StridedShard, Reduce::Sum, stored, split, units};
}
constexpr Placement Replicate() { return {}; }
// Every rank holds a partial value; the tensor is their reduction. A row-wise sharded embedding is
// a Partial(sum) too: lookups of rows that a rank does not hold give zeros, so the tensor needs no
// mask.
constexpr Placement Partial(Reduce reduce = Reduce::Sum) {
  return {PlacementKind::Partial, reduce, 0, 1, 1};
}

std::ostream& operator<<(std::ostream& out, const Placement& placement);
// Error{BadInput} quotes the text.
Placement parse_placement(std::string_view text);

}  // namespace coshard
#pragma GCC visibility pop
