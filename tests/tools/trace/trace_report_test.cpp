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
      rank.ready(event, 5500, 9000, 9500);
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
  std::filesystem::create_symlink("/dev/full", page_);
  options_.page = page_;
  EXPECT_EQ(why_not(), page_ + ": could not be written");
}

TEST_F(TraceReport, APageOfAnotherKindIsRefusedBeforeAnythingIsRead) {
  options_.page = "run.png";
  options_.file = "/nowhere/a.json";
  EXPECT_EQ(why_not(), "-o run.png: expected a name that ends in .html or .svg");
  EXPECT_FALSE(std::filesystem::exists("run.png"));
}

TEST_F(TraceReport, SaysWhyABaselineOfAnotherLinkGivesNoEfficiency) {
  options_.baseline = coshard::testing::temporary_path("base.json");
  std::vector<ChromeTrace> ranks(2);
  CommEvent event;
  event.id = 1;
  event.link = "20us,1GB/s";
  for (ChromeTrace& rank : ranks) {
    rank.issued(event, 2000);
    rank.ready(event, 2000, 9000, 9500);
    rank.computed("matmul", ComputeClass::Gemm, 1000, 2000);
  }
  std::ofstream file(options_.baseline);
  write_chrome_trace(file, ranks);
  file.close();
  const std::string why = "the baseline is on a link of 20us,1GB/s, the trace on no emulated link";
  EXPECT_NE(report().find("\nE is not known: " + why + "\n"), std::string::npos) << report();
  options_.json = true;
  EXPECT_TRUE(coshard::testing::json_holds(
      report(), "assert d['why_no_efficiency'] == '" + why + "' and d['mean']['ect_ms'], d"));
  std::filesystem::remove(options_.baseline);
}

}  // namespace
}  // namespace coshard::tools
