#pragma once
// One step of a plan, in the abstract: from one layout to the next by one collective over some mesh
// dimensions, or by none. Pure: decided for all ranks of a mesh at once, from index sets alone.
#include <span>
#include <string>

#include <coshard/dtensor/mesh/layout.h>
#include "dtensor/redistribute/shard_map.h"

namespace coshard {

// The last three move no data:
//   Slice               keeps a part of what the rank holds (R -> S, S -> S)
//   ReplicateToPartial  R -> P: each rank keeps its share of the value
//   ShardToPartial      S -> P(sum): each rank puts its shard into zeros
enum class StepKind : std::uint8_t {
  AllGather,
  AllReduce,
  ReduceScatter,
  AllToAll,
  Slice,
  ReplicateToPartial,
  ShardToPartial,
};
constexpr bool communicates(StepKind kind) { return kind <= StepKind::AllToAll; }
std::string_view to_string(StepKind kind);  // "all_gather", …; "to_partial" for the last two

// A step without its layouts.
struct Move {
  StepKind kind = StepKind::Slice;
  MeshDims dims = 0;  // over which it communicates; several: on the mesh flattened over them
  double moved = 0;   // elements the busiest rank receives; a reduction also sends that many
  double copied = 0;  // elements copied within a rank
  double time = 0;    // predicted, us
};

struct PlanStep : Move {
  Layout from, to;
};

// How the Partials over `dims` are reduced by one collective. `divisor`: what the sum is divided by
// when some of them are averages and the others sums.
struct JointReduce {
  Reduce reduce = Reduce::Sum;
  int divisor = 1;
};
JointReduce reduction_of(const Layout& layout, MeshDims dims, std::span<const int> mesh_shape);

// Whether the collective itself can describe this step for `group` (ranks in communicator order),
// as shards of one or two tensor dimensions in rank order. Otherwise the blocks are packed.
bool is_plain(ShardMap& shard_map, const PlanStep& step, std::span<const int> group);

// "S(0)S(0)->RR": the mesh dimensions that change.
std::string label_of(const PlanStep& step);

}  // namespace coshard
