#pragma once
// Runs conformance cases (format: tests/conformance/cases/FORMAT.md) on ranks as threads.
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>
#include "tools/conform/case_file.h"
#include "tools/conform/check.h"

namespace coshard::conform {

// Empty if the case passes; otherwise the first failure: an error in a step, a step that should
// have failed and did not, or a check, with the operator and the layouts of its inputs. A case that
// cannot be run fails.
// `world`: what it runs on, except the number of ranks. `judge`: checks the ranks' results; those
// of ranks in other processes are empty.
using Judge = std::function<std::string(const Case& c, const std::vector<RankResult>& ranks)>;
std::string run_case(const Case& c, WorldOptions world = {}, const Judge& judge = failure_of);

struct Tally {
  int passed = 0, failed = 0;
};
// Runs the cases whose name contains `only` of every *.json in `directory`; writes a line per
// failure, and "N passed, N failed" at the end. Error{BadInput} for a directory without cases, or
// without one of that name.
Tally run_directory(const std::string& directory, const std::string& only, std::ostream& out,
                    const WorldOptions& world = {});

}  // namespace coshard::conform
