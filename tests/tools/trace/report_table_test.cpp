#include "tools/trace/report_table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/tools/trace/small_trace.h"

namespace coshard::tools {
namespace {

std::string printed(const overlap::OverlapReport& report) {
  std::ostringstream out;
  print_report_table(out, report, "a.json");
  return out.str();
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << " is missing in\n" << text;
}

TEST(ReportTable, HasALinePerRankKindAndModule) {
  const std::string text = printed(overlap::overlap_of(coshard::testing::small_trace()));
  EXPECT_TRUE(
      text.starts_with("a.json: 2 ranks, on an emulated link of 20us,1GB/s, without 5 "
                       "events that were dropped\n"))
      << text;
  // clang-format off
  expect_line(text, "rank    total ms  computing communicating    exposed hidden %      idle collectives        MB      ECT ms");
  expect_line(text, "0         100.00      60.00         40.00      10.00     75.0     30.00           1     3.000           -");
  expect_line(text, "mean      100.00      70.00         30.00      15.00     50.0     15.00           1     3.000           -");
  expect_line(text, "all_gather      S(0)->R                      1       3.000         30.00       15.00      50.0");
  expect_line(text, "layers.0                                     1       30.00         30.00       15.00      50.0");
  expect_line(text, "layers.1                                     0       40.00          0.00        0.00         -");
  expect_line(text, "     20.00 1           0.00  all_gather S(0)->R                 layers.0               a.cpp:7");
  // clang-format on
  EXPECT_NE(text.find("\nECT is not known: --baseline"), std::string::npos) << text;
}

TEST(ReportTable, WithABaselineHasEctAndEfficiency) {
  overlap::OverlapReport report = overlap::overlap_of(coshard::testing::small_trace());
  overlap::add_baseline(report, coshard::testing::small_trace(), coshard::testing::small_trace());
  const std::string text = printed(report);
  EXPECT_EQ(text.find("not known"), std::string::npos) << text;
  EXPECT_NE(text.find("     3.000       40.00    0.0\n"), std::string::npos) << text;
}

TEST(ReportTable, SaysHowManyModulesItLeavesOut) {
  std::vector<overlap::RankTrace> trace = {{0, "", 0, {}}};
  for (int i = 0; i < 30; ++i)
    trace[0].events.push_back(
        {overlap::TraceEvent::Kind::Kernel, {i, i + 1}, "add", "m" + std::to_string(i), "", "", 0});
  const std::string text = printed(overlap::overlap_of(trace));
  EXPECT_NE(text.find("\nand 11 modules that are less exposed; --json has all of them\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("Longest exposed"), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard::tools
