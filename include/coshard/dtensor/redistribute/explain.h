#pragma once
// What a redistribute would do, without ranks or data: its plan for a mesh shape, as text.
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/mesh/layout.h>
#include <coshard/dtensor/mesh/shape.h>
#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

struct ExplainOptions {
  std::vector<std::string> mesh_names;
  std::vector<int> mesh_shape;
  std::vector<Link> links;  // one per dimension, or none: Link()
  Shape shape;
  DType dtype = DType::F32;
  Layout from, to;
};

struct PlanExplanation {
  struct Step {
    std::string layouts;     // "S(0)R -> RR"
    std::string collective;  // "all_gather"; "slice" and "to_partial" issue none
    std::string over;        // "dp", "dp_tp"; empty where nothing is issued
    int ranks = 1;           // of the group
    std::int64_t bytes = 0;  // that the busiest rank receives
    double us = 0;           // predicted
  };
  std::string trace;  // "S(0)R -> RR -> RS(1)"
  std::vector<Step> steps;
  std::int64_t bytes = 0;
  double us = 0;
};

// Error{BadInput}: mesh sizes below 1, or more than 6 dimensions; layouts that do not fit mesh or
// tensor; what redistribute refuses; a reduction that the dtype does not have.
PlanExplanation explain(const ExplainOptions& question);
std::ostream& operator<<(std::ostream& out, const PlanExplanation& answer);  // a table with totals

constexpr int kMostRanksOfPlan = 65'536;

// Parses text, as on a command line. Error{BadInput} quotes the text.
//   mesh "dp=2,tp=4" or "2,4"   shape "8,16"   layouts "S(0),R"
ExplainOptions parse_question(std::string_view mesh, std::string_view shape, std::string_view from,
                              std::string_view to, std::string_view dtype = "f32");
// Sets links: "20us,1GB/s" for all dimensions, "dp=20us,1GB/s" for one.
void set_link(ExplainOptions& question, std::string_view link);

}  // namespace coshard
#pragma GCC visibility pop
