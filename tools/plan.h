#pragma once
// coshard plan explain: the steps of a redistribute, for a mesh that need not exist.
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

struct PlanOptions {
  std::string mesh, shape, from, to, dtype = "f32";
  std::vector<std::string> links;  // "20us,1GB/s", "dp=20us,1GB/s"
  bool json = false;
};

// Prints the plan. Error{BadInput}: options that cannot be parsed or redistributed.
void explain_plan(const PlanOptions& options, std::ostream& out);

}  // namespace coshard::tools
