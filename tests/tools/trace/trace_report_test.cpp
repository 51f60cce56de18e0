#include "tools/trace/trace_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/runtime/error.h>
#include "tests/support/json.h"

namespace coshard::tools {
namespace {

class TraceReport : public ::testing::Test {
 protected:
  TraceReport() {
    std::vector<ChromeTrace> ranks(2);
    for (ChromeTrace& rank : ranks) {
      CommEvent event;
      event.id = 1;
      rank.issued(event, 2000);
      rank.ready(event, 2000, 9000, 9500);
      rank.computed("matmul", ComputeClass::Gemm, 1000, 5500);
    }
    std::ofstream file(options_.file);
    write_chrome_trace(file, ranks);
  }
  ~TraceReport() override {
    for (const std::string& file : {options_.file, page_}) std::filesystem::remove(file);
  }
  std::string report() const {
    std::ostringstream out;
    trace_report(options_, out);
    return out.str();
  }
  std::string why_not() const {
    try {
      (void)report();
    } catch (const Error& error) {
      return error.what();
    }
    return "it was done";
  }

  TraceReportOptions options_{coshard::testing::temporary_path("a.trace.json"), "", "", false};
  std::string page_ = coshard::testing::temporary_path("a.html");
};

TEST_F(TraceReport, PrintsATableOrOneJsonObject) {
  EXPECT_TRUE(report().starts_with(options_.file + ": 2 ranks\n\nrank ")) << report();
  options_.json = true;
  EXPECT_TRUE(coshard::testing::json_holds(report(), "assert d['mean']['hidden_share'] == 0.5, d"));
}

TEST_F(TraceReport, WritesAPageAndSaysWhere) {
  options_.page = page_;
  EXPECT_TRUE(report().ends_with("\npage: " + page_ + "\n")) << report();
  EXPECT_GT(std::filesystem::file_size(page_), 10'000U);
  options_.json = true;
  EXPECT_TRUE(coshard::testing::json_holds(report(), "assert 'mean' in d"));
}

TEST_F(TraceReport, WritesAPictureInsteadWhereTheNameSaysSo) {
  page_ = options_.page = coshard::testing::temporary_path("a.svg");
  options_.baseline = options_.file;
  EXPECT_TRUE(report().ends_with("\npicture: " + page_ + "\n")) << report();
  std::ifstream file(page_);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(text.starts_with("<svg ")) << text;
  EXPECT_NE(text.find("Without overlap: "), std::string::npos) << text;
}

TEST_F(TraceReport, ABaselineGivesTheEffectiveTime) {
  options_.baseline = options_.file;
  options_.json = true;
  EXPECT_TRUE(coshard::testing::json_holds(
      report(), "assert abs(d['mean']['ect_ms'] - 0.004) < 1e-9, d['mean']"));
  options_.baseline = "/nowhere/base.json";
  EXPECT_EQ(why_not(), "/nowhere/base.json: No such file or directory");
}

TEST_F(TraceReport, APageThatCannotBeWrittenIsNamed) {
  options_.page = "/nowhere/a.html";
  EXPECT_EQ(why_not(), "-o /nowhere/a.html: No such file or directory");
  options_.page = options_.file;
  EXPECT_EQ(why_not(), "-o " + options_.file + ": is a trace, which it would overwrite");
  options_.page = "/dev/full";
  EXPECT_EQ(why_not(), "/dev/full: could not be written");
}

}  // namespace
}  // namespace coshard::tools
