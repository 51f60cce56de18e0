#pragma once
// Runs conformance cases (format: tests/conformance/cases/FORMAT.md) on ranks as threads.
#include <ostream>
#include <string>

#include <coshard/runtime/launch/world.h>
#include "tools/conform/case_file.h"

namespace coshard::conform {

// Empty when the case holds; otherwise what failed first: an error of a step, a step that should
// have failed and did not, or a check, with the operator and the layouts it saw. A case that cannot
// be run has failed.
// `world`: what it runs on; the number of ranks is the case's.
std::string run_case(const Case& c, WorldOptions world = {});

struct Tally {
  int passed = 0, failed = 0;
};
// Runs the cases whose name contains `only` of every *.json in `directory`; writes a line per
// failure, and "N passed, N failed" at the end. Error{BadInput} for a directory without cases, or
// without one of that name.
Tally run_directory(const std::string& directory, const std::string& only, std::ostream& out,
                    const WorldOptions& world = {});

}  // namespace coshard::conform
