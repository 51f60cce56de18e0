#pragma once
// A plan lowered for one rank: its steps with communicators, geometry and local shapes. Cached per
// rank, so that a repeated redistribute costs a lookup and its collectives.
#include <memory>
#include <string_view>
#include <vector>

#include <coshard/dtensor/mesh/spec.h>
#include <coshard/runtime/comm/communicator.h>
#include "dtensor/redistribute/blocks.h"
#include "dtensor/redistribute/planner.h"

namespace coshard {

struct Step {
  StepKind kind;
  MeshDims dims;
  std::shared_ptr<const Spec> after;  // layout, logical and local shape once the step is done
  std::string_view label;             // "S(0)->R"
  // For a collective: its communicator and geometry, without buffers.
  Communicator* communicator = nullptr;
  Collective collective;
  int gathered =
      -1;  // AllGather in its own geometry: the dimension whose shards arrive in rank order
  int divisor = 1;  // of a sum that replaces averages
  // Slice: where the new part begins in the rank's own, if it is one block.
  Shape begin;
  bool is_view = false;
  // ReplicateToPartial, ShardToPartial: what ranks that do not keep the value hold instead, and
  // whether this one keeps it.
  double filling = 0;
  bool keeps = true;
  // Slice and ShardToPartial: from the old local tensor to the new one. Collectives: into and out
  // of packed buffers of this many elements, if they need them.
  StridedBlocks pack, unpack;
  bool packs = false, unpacks = false;
  std::int64_t packed = 0, unpacked = 0;
};

// The part of a plan that is the same on every rank, also outside the mesh.
struct PlanOutline {
  bool communicates = false;
  int shards = 1;  // in which the result arrives: the ranks of a final all_gather
};

struct RedistributePlan {
  std::shared_ptr<const Spec> source, target;
  int width = 0;  // bytes per element, for which it is the cheapest
  PlanOutline outline;
  std::vector<Step> steps;
};

// The cached plan from `source` to `target` on the same mesh, for elements of `dtype`. Called by
// all ranks of the mesh at the same point of the program, because it may create communicators.
// Error{BadInput}: as plan_steps.
std::shared_ptr<const RedistributePlan> plan_for(const std::shared_ptr<const Spec>& source,
                                                 const Layout& target, DType dtype);

// On any rank of the world. `target` is normalized.
PlanOutline outline_of(const std::shared_ptr<const Spec>& source, const Layout& target,
                       DType dtype);

}  // namespace coshard
