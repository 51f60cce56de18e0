#include "profiling/bench/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/support/json.h"

namespace coshard::bench {
namespace {

Report sample() {
  Report report("sample");
  report.results.push_back(measured("cost", {20, 18, 25, 1, 7}, "ns", 30));
  report.results.push_back(ratio("speed", 1.5, 2.0));
  report.results.push_back(measured("plain", {1, 1, 1, 0, 1}, "us"));
  return report;
}

TEST(Report, IsOneJsonObjectWithBenchMachineAndResults) {
  EXPECT_TRUE(coshard::testing::json_holds(sample().json(), R"(
assert d['bench'] == 'sample'
assert d['machine']['cores'] >= 1 and d['machine']['cpu'] and d['machine']['compiler']
cost, speed, plain = d['results']
assert cost == {'name': 'cost', 'value': 20, 'unit': 'ns', 'target': 30, 'ok': True, 'min': 18, 'max': 25}, cost
assert speed['target'] == 2 and speed['ok'] is False, speed
assert plain['target'] is None and plain['ok'] is None, plain
)"));
}

TEST(Report, ATableSaysWhatMissesItsTarget) {
  std::ostringstream out;
  sample().print_table(out);
  EXPECT_NE(out.str().find("NO"), std::string::npos);
  EXPECT_NE(out.str().find(">= 2"), std::string::npos);
}

TEST(Report, AResultThatIsNotMeasurableIsNullAndADash) {
  Report report("sample");
  report.results.push_back(ratio("speed", std::numeric_limits<double>::quiet_NaN(), 2.0));
  EXPECT_TRUE(coshard::testing::json_holds(report.json(), R"(
speed = d['results'][0]
assert speed['value'] is None and speed['ok'] is None and speed['target'] == 2, speed
)"));
  std::ostringstream out;
  report.print_table(out);
  EXPECT_NE(out.str().find(" - x "), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("nan"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("NO"), std::string::npos) << out.str();
}

TEST(Report, FindsResultsByName) {
  const Report report = sample();
  ASSERT_NE(report.find("speed"), nullptr);
  EXPECT_EQ(report.find("speed")->value, 1.5);
  EXPECT_EQ(report.find("speeds"), nullptr);
}

}  // namespace
}  // namespace coshard::bench
