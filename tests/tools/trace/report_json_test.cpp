#include "tools/trace/report_json.h"

#include <gtest/gtest.h>

#include "tests/support/json.h"
#include "tests/tools/trace/small_trace.h"

namespace coshard::tools {
namespace {

TEST(ReportJson, HasRanksKindsModulesAndTheirMean) {
  const std::string text =
      json_text(report_json(overlap::overlap_of(coshard::testing::small_trace()), "a.json"));
  EXPECT_TRUE(coshard::testing::json_holds(text, R"(
assert (d['file'], d['link'], d['dropped_events']) == ('a.json', '20us,1GB/s', 5), d
first, second = d['ranks']
assert (first['rank'], first['total_ms'], first['compute_ms'], first['idle_ms']) == (0, 100, 60, 30), first
assert (first['communication_ms'], first['exposed_ms'], first['hidden_share']) == (40, 10, 0.75), first
assert first['ect_ms'] is None and first['overlap_efficiency'] is None
assert second['hidden_share'] == 0 and second['collectives'] == 1 and second['bytes'] == 3000000
assert first['kinds'] == [{'op': 'all_gather', 'for': 'S(0)->R', 'collectives': 1, 'bytes': 3000000,
                           'communication_ms': 40, 'exposed_ms': 10, 'hidden_share': 0.75}], first['kinds']
assert [m['module'] for m in first['modules']] == [None, 'layers', 'layers.0', 'model'][1:], first['modules']
mean = d['mean']
assert 'rank' not in mean and mean['exposed_ms'] == 15 and mean['hidden_share'] == 0.5, mean
longest = d['longest_exposed']
assert [(e['rank'], e['begin_ms'], e['exposed_ms']) for e in longest] == [(1, 0, 20), (0, 60, 10)], longest
assert longest[0]['collective'] == 'all_gather S(0)->R' and longest[0]['at'] == 'a.cpp:7'
)"));
}

TEST(ReportJson, WithABaselineEctIsKnown) {
  overlap::OverlapReport report = overlap::overlap_of(coshard::testing::small_trace());
  overlap::add_baseline(report, coshard::testing::small_trace(), coshard::testing::small_trace());
  EXPECT_TRUE(coshard::testing::json_holds(json_text(report_json(report, "a.json")), R"(
assert [r['ect_ms'] for r in d['ranks']] == [40, 20] and d['mean']['ect_ms'] == 30
assert [r['overlap_efficiency'] for r in d['ranks']] == [0, 0]  # as good as itself
)"));
}

}  // namespace
}  // namespace coshard::tools
