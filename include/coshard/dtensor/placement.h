#pragma once
// Where the parts of a tensor lie along one mesh dimension. A small trivial value: pass it by
// value, also into coroutines. Meaning and text form as in PyTorch: R, S(0), P(sum), _S(0,3).
#include <cstdint>
#include <ostream>
#include <string_view>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

enum class PlacementKind : std::uint8_t { Replicate, Shard, StridedShard, Partial };

struct Placement {
  PlacementKind kind = PlacementKind::Replicate;
  Reduce reduce = Reduce::Sum;  // of a Partial
  std::int16_t dim = 0;         // of a shard; may be negative until a layout is normalised
  std::int32_t split = 1;       // of a StridedShard

  constexpr bool is_replicate() const { return kind == PlacementKind::Replicate; }
  constexpr bool is_partial() const { return kind == PlacementKind::Partial; }
  constexpr bool is_shard() const { return kind == PlacementKind::Shard; }
  constexpr bool is_shard(int d) const { return is_shard() && dim == d; }
  constexpr bool is_strided() const { return kind == PlacementKind::StridedShard; }
  // Does it cut the tensor, or its dimension d, in either way?
  constexpr bool cuts() const { return is_shard() || is_strided(); }
  constexpr bool cuts(int d) const { return cuts() && dim == d; }
  friend constexpr bool operator==(const Placement&, const Placement&) = default;
};

// Cut along tensor dimension `dim` by torch.chunk: pieces of ceil(size/n), the last ones smaller or
// empty.
constexpr Placement Shard(int dim) {
  return {PlacementKind::Shard, Reduce::Sum, static_cast<std::int16_t>(dim), 1};
}
// Cut into `split` chunks, each of them into n; rank i joins the i-th pieces (PyTorch's
// _StridedShard).
constexpr Placement StridedShard(int dim, int split) {
  return {PlacementKind::StridedShard, Reduce::Sum, static_cast<std::int16_t>(dim), split};
}
constexpr Placement Replicate() { return {}; }
// Every rank holds a term; the value is their reduction. An embedding cut by rows is a Partial(sum)
// too: rows that a rank does not hold are zeroed at the lookup, so no mask has to travel with the
// tensor.
constexpr Placement Partial(Reduce reduce = Reduce::Sum) {
  return {PlacementKind::Partial, reduce, 0, 1};
}

std::ostream& operator<<(std::ostream& out, const Placement& placement);
// Error{BadInput} quotes what cannot be read.
Placement parse_placement(std::string_view text);

}  // namespace coshard
