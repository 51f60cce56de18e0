#pragma once
// A plan made ready for one rank: its steps with communicators, geometry and local shapes. Cached
// per rank, so that a repeated redistribute pays a look-up and its collectives.
#include <memory>
#include <string_view>
#include <vector>

#include <coshard/dtensor/spec.h>
#include <coshard/runtime/comm/communicator.h>
#include "dtensor/redistribute/boxes.h"
#include "dtensor/redistribute/search.h"

namespace coshard {

struct Step {
  StepKind kind;
  MeshDims dims;
  std::shared_ptr<const Spec> after;  // layout, logical and local shape once the step is done
  std::string_view label;             // "S(0)->R"
  // What communicates: on which communicator, and the collective's geometry, without buffers.
  Communicator* communicator = nullptr;
  Collective collective;
  int gathered =
      -1;           // AllGather in its own geometry: the dimension whose pieces come in rank order
  int divisor = 1;  // of a sum that stands for averages
  // Slice: where the part begins within the rank's own, when it is one block.
  Shape begin;
  bool is_view = false;
  // Share, Expand: what the ranks that do not keep the value hold instead, and whether this one
  // does.
  double filling = 0;
  bool keeps = true;
  // Slice and Expand: out of the old local tensor into the new one. What communicates: into and out
  // of packed buffers of so many elements, where it has them.
  Boxes pack, unpack;
  bool packs = false, unpacks = false;
  std::int64_t packed = 0, unpacked = 0;
};

// What is the same on every rank, also outside the mesh.
struct PlanOutline {
  bool communicates = false;
  int shards = 1;  // in which the result arrives: the ranks of an all-gather that comes last
};

struct RedistributePlan {
  std::shared_ptr<const Spec> source, target;
  PlanOutline outline;
  std::vector<Step> steps;
};

// The cached plan for a tensor of `source` and `target`'s layout on the same mesh. Made by all
// ranks of the mesh at the same point of the program, since it may create communicators.
// Error{BadInput}: as plan_steps.
std::shared_ptr<const RedistributePlan> plan_for(const std::shared_ptr<const Spec>& source,
                                                 const Layout& target);

// On any rank of the world. `target` is normalised.
PlanOutline outline_of(const std::shared_ptr<const Spec>& source, const Layout& target);

}  // namespace coshard
