#pragma once
// The planner: from one layout to another, as steps that each change one mesh dimension. Pure: the
// same arguments give the same plan, on every rank, and nothing is touched. Plans are cached by
// value, per rank.
#include <memory>
#include <string_view>
#include <vector>

#include "dtensor/spec.h"
#include "runtime/comm/communicator.h"

namespace coshard {

enum class StepKind : std::uint8_t { AllGather, AllReduce, ReduceScatter, AllToAll, Slice, Share };

// One change of one mesh dimension. Slice (R -> S) and Share (R -> P) move nothing.
struct Step {
  StepKind kind;
  int mesh_dim;
  Placement from, to;
  std::shared_ptr<const Spec> after;  // layout, logical and local shape once the step is done
  Collective collective;   // geometry, counts and label; no buffers. Only for what communicates
  std::string_view label;  // "S(0)->R"
};

struct RedistributePlan {
  std::shared_ptr<const Spec> source, target;
  std::vector<Step> steps;
};

// The order of transitions alone: (mesh dimension, from, to). Inner shards of a tensor dimension
// are undone before outer ones and made after them. Error{BadInput} for a transition that does not
// exist (Shard -> Partial, one Partial to another, Replicate -> Partial(product)).
struct Transition {
  int mesh_dim;
  Placement from, to;
};
std::vector<Transition> transitions(const Layout& from, const Layout& to);

// The cached plan for a tensor of `source` and `target`'s layout on the same mesh.
const RedistributePlan& plan_for(const std::shared_ptr<const Spec>& source, const Layout& target);

}  // namespace coshard
