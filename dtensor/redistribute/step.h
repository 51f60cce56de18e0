#pragma once
// One step of a plan, in the abstract: from one layout to the next by one collective over some mesh
// dimensions, or by none. Pure: decided for all ranks of a mesh at once, from index sets alone.
#include <span>
#include <string>

#include <coshard/dtensor/layout.h>
#include "dtensor/redistribute/holdings.h"

namespace coshard {

// Slice (a part of what the rank holds), Share (R -> P) and Expand (S -> P(sum): the own part
// within zeros) move nothing.
enum class StepKind : std::uint8_t {
  AllGather,
  AllReduce,
  ReduceScatter,
  AllToAll,
  Slice,
  Share,
  Expand,
};
constexpr bool communicates(StepKind kind) { return kind <= StepKind::AllToAll; }
std::string_view to_string(StepKind kind);  // "all_gather", …

// A step without its layouts.
struct Move {
  StepKind kind = StepKind::Slice;
  MeshDims dims = 0;  // over which it communicates; several: on the mesh flattened over them
  double moved = 0;   // elements that the busiest rank receives; a reduction sends as many
  double copied = 0;  // elements copied within a rank
  double time = 0;    // predicted, us
};

struct PlanStep : Move {
  Layout from, to;
};

// How the Partials of `dims` are reduced at once: the reduction, and what a sum is divided by when
// only some of them are averages.
struct JointReduce {
  Reduce reduce = Reduce::Sum;
  int divisor = 1;
};
JointReduce reduction_of(const Layout& layout, MeshDims dims, std::span<const int> mesh_shape);

// Whether the step, for one group in the order of its communicator, is the collective's own
// geometry (pieces of one or two tensor dimensions, in rank order); otherwise pieces are packed.
bool is_plain(Holdings& holdings, const PlanStep& step, std::span<const int> group);

// "S(0)S(0)->RR": the mesh dimensions that change.
std::string label_of(const PlanStep& step);

}  // namespace coshard
