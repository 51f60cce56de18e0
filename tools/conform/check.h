#pragma once
// The checks of a case against what its ranks held at the end. Pure functions; the table of
// FORMAT.md says what each field means, and nothing less is compared.
#include <map>
#include <string>
#include <vector>

#include "tools/conform/gather.h"
#include "tools/conform/program.h"

namespace coshard::conform {

// What one rank leaves behind: a snapshot per check that asks for a tensor, and the collectives of
// each step.
struct RankResult {
  std::map<std::size_t, Snapshot> tensors;  // by the check's number
  std::map<std::size_t, StepCounter::Counts> steps;
};

// The tensor a check is about: a value, a leaf's gradient, a parameter; undefined for collectives.
Tensor subject_of(const Program& program, const Json& check);

// Empty when everything holds, otherwise the first thing that does not.
std::string failure_of(const Case& c, const std::vector<RankResult>& ranks);

}  // namespace coshard::conform
