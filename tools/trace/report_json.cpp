#include "tools/trace/report_json.h"

namespace coshard::tools {
namespace {

using overlap::Figures;
using overlap::RankOverlap;

double ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

void add(Json& object, const Figures& figures) {
  object["collectives"] = figures.collectives;
  object["bytes"] = figures.bytes;
  object["compute_ms"] = ms(figures.compute_ns);
  object["communication_ms"] = ms(figures.communication_ns);
  object["exposed_ms"] = ms(figures.exposed_ns);
  object["hidden_share"] = or_null(figures.hidden());
}

Json rank_json(const RankOverlap& one) {
  Json object = Json::object();
  if (one.rank >= 0) object["rank"] = one.rank;
  object["total_ms"] = ms(one.all.total_ns);
  add(object, one.all);
  object["idle_ms"] = ms(one.all.idle_ns);
  object["idle_gaps"] = one.all.idle_gaps;
  object["longest_idle_ms"] = ms(one.all.longest_idle_ns);
  object["ect_ms"] = one.all.ect_ns ? Json(ms(*one.all.ect_ns)) : Json();
  object["overlap_efficiency"] = or_null(one.all.efficiency);
  object["kinds"] = Json::array();
  for (const auto& [kind, figures] : one.kinds) {
    Json row{{"op", kind.first}, {"for", kind.second}};
    add(row, figures);
    row.erase("compute_ms");
    object["kinds"].push_back(std::move(row));
  }
  object["modules"] = Json::array();
  for (const auto& [path, figures] : one.modules) {
    Json row{{"module", path.empty() ? Json() : Json(path)}};
    add(row, figures);
    object["modules"].push_back(std::move(row));
  }
  return object;
}

}  // namespace

Json report_json(const overlap::OverlapReport& report, const std::string& file) {
  Json all{{"file", file},
           {"link", report.link.empty() ? Json() : Json(report.link)},
           {"about", report.about},
           {"why_no_efficiency",
            report.why_no_efficiency.empty() ? Json() : Json(report.why_no_efficiency)},
           {"dropped_events", report.dropped},
           {"mean", rank_json(overlap::mean_of(report))},
           {"ranks", Json::array()},
           {"longest_exposed", Json::array()}};
  for (const RankOverlap& rank : report.ranks) all["ranks"].push_back(rank_json(rank));
  for (const overlap::Stretch& one : report.longest)
    all["longest_exposed"].push_back({{"rank", one.rank},
                                      {"begin_ms", ms(one.time.begin)},
                                      {"exposed_ms", ms(one.time.length())},
                                      {"collective", one.collective},
                                      {"module", one.module},
                                      {"at", one.at}});
  return all;
}

}  // namespace coshard::tools
