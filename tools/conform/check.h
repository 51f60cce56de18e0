#pragma once
// Checks a case against what its ranks held at the end. Pure functions; FORMAT.md specifies each
// field, and all of it is compared.
#include <map>
#include <string>
#include <vector>

#include "tools/conform/gather.h"
#include "tools/conform/program.h"

namespace coshard::conform {

// The results of one rank: a snapshot per check of a tensor, and the collectives of each step.
struct RankResult {
  std::map<std::size_t, Snapshot> tensors;  // by the check's number
  std::map<std::size_t, StepCounter::Counts> steps;
};

// The tensor to check: a value, a leaf's gradient, a parameter; undefined for collectives.
Tensor subject_of(const Program& program, const Json& check);

// Empty if all checks pass, otherwise the first failure.
std::string failure_of(const Case& c, const std::vector<RankResult>& ranks);

}  // namespace coshard::conform
