#include "tools/trace/trace_merge.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/runtime/error.h>
#include "profiling/json.h"
#include "tests/support/json.h"
#include "tests/support/nanoseconds.h"

namespace coshard::tools {
namespace {

// A rank whose times are `later`.
ChromeTrace traced(std::int64_t later) {
  ChromeTrace rank;
  CommEvent event;
  event.id = 1;
  rank.issued(event, later + 2'001);
  rank.ready(event, later + 2'001, later + 9'007, later + 9'501);
  rank.computed("matmul", ComputeClass::Gemm, later + 1'003, later + 5'509);
  return rank;
}

class TraceMerge : public ::testing::Test {
 protected:
  ~TraceMerge() override {
    for (const std::string& file : {one_, other_, all_}) std::filesystem::remove(file);
  }
  static void write(const std::string& name, const std::vector<ChromeTrace>& ranks, int first = 0,
                    std::optional<std::int64_t> offset = std::nullopt) {
    std::ofstream file(name);
    write_chrome_trace(file, ranks, first, offset);
  }
  static Json read(const std::string& name) {
    std::ifstream file(name);
    return Json::parse(file);
  }
  std::string merged() const {
    std::ostringstream out;
    trace_merge({{one_, other_}, all_}, out);
    return out.str();
  }
  std::string why_not() const {
    try {
      return merged();
    } catch (const Error& error) {
      return error.what();
    }
  }
  const std::string one_ = coshard::testing::temporary_path("one.trace.json"),
                    other_ = coshard::testing::temporary_path("other.trace.json"),
                    all_ = coshard::testing::temporary_path("all.trace.json");
};

TEST_F(TraceMerge, OfFilesOfOneHostIsTheTraceOfAllRanks) {
  write(all_, {traced(70'000), traced(900), traced(0)});
  const Json together = read(all_);
  write(one_, {traced(70'000)});
  write(other_, {traced(900), traced(0)}, 1);
  EXPECT_EQ(merged(), all_ + ": 3 ranks of 2 files\n");
  EXPECT_EQ(read(all_), together);
}

// Times of the clock of another boot, which is an hour behind.
TEST_F(TraceMerge, OfFilesOfSeveralHostsHasTheTimesOfRankZero) {
  using coshard::testing::kHour;
  write(all_, {traced(kHour), traced(kHour + 333)}, 0, 0);
  const Json together = read(all_);
  write(one_, {traced(kHour)}, 0, 0);
  write(other_, {traced(333)}, 1, kHour);
  (void)merged();
  EXPECT_EQ(read(all_), together);
}

TEST_F(TraceMerge, KeepsWhatTheFilesAreOfAndRefusesThoseOfAnotherRun) {
  const auto written = [](const std::string& name, int rank, const TraceAbout& about) {
    std::ofstream file(name);
    const ChromeTrace trace = traced(0);
    write_chrome_trace(file, {&trace, 1}, rank, std::nullopt, about);
  };
  written(one_, 0, {{"plan", "tp"}});
  written(other_, 1, {{"plan", "tp"}});
  (void)merged();
  EXPECT_EQ(read(all_)["otherData"], read(one_)["otherData"]);
  EXPECT_EQ(read(all_)["otherData"]["plan"], "tp");
  written(other_, 1, {{"plan", "dp"}});
  EXPECT_EQ(why_not(), other_ + R"(: is of {"plan":"dp"}, )" + one_ + R"( of {"plan":"tp"})");
}

TEST_F(TraceMerge, RefusesFilesThatDoNotFitTogetherAndNamesThem) {
  write(one_, {traced(0)});
  write(other_, {traced(0)});
  EXPECT_EQ(why_not(), other_ + ": has rank 0, which " + one_ +
                           " has too; write each process's trace with its first_rank");
  write(other_, {traced(0)}, 1, 5);
  EXPECT_TRUE(why_not().starts_with(other_ + ": has another clock than " + one_)) << why_not();
  std::ofstream(other_) << R"({"traceEvents":[]})";
  EXPECT_TRUE(why_not().starts_with(other_ + ": is no trace that ")) << why_not();
  for (const char* events : {"7", R"([7])", R"([{}, {"ts": "soon"}])", R"([{"name": 7}])",
                             R"([{"name": "process_name"}])"}) {
    std::ofstream(other_) << R"({"otherData":{"clock":")"
                          << read(one_)["otherData"]["clock"].get<std::string>()
                          << R"(","origin_ns":0},"traceEvents":)" << events << "}";
    EXPECT_TRUE(why_not().starts_with(other_ + ": ")) << why_not();
    EXPECT_NE(why_not().find("traceEvents"), std::string::npos) << why_not();
  }
  std::filesystem::remove(other_);
  EXPECT_EQ(why_not(), other_ + ": No such file or directory");
  std::ostringstream out;
  EXPECT_THROW(trace_merge({{one_}, one_}, out), Error);
  EXPECT_EQ(read(one_)["otherData"]["origin_ns"], 1'003);
}

}  // namespace
}  // namespace coshard::tools
