#include "tools/plan.h"

#include <nlohmann/json.hpp>

#include <coshard/dtensor/redistribute/explain.h>

namespace coshard::tools {

void explain_plan(const PlanOptions& options, std::ostream& out) {
  ExplainOptions question =
      parse_question(options.mesh, options.shape, options.from, options.to, options.dtype);
  for (const std::string& link : options.links) set_link(question, link);
  const PlanExplanation answer = explain(question);
  if (!options.json) {
    out << answer;
    return;
  }
  nlohmann::ordered_json json{{"trace", answer.trace}, {"steps", nlohmann::json::array()}};
  for (const auto& step : answer.steps)
    json["steps"].push_back(nlohmann::ordered_json{{"layouts", step.layouts},
                                                   {"by", step.collective},
                                                   {"over", step.over},
                                                   {"ranks", step.ranks},
                                                   {"bytes", step.bytes},
                                                   {"us", step.us}});
  json["bytes"] = answer.bytes;
  json["us"] = answer.us;
  out << json.dump(2) << '\n';
}

}  // namespace coshard::tools
