#include "profiling/overlap/trace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/runtime/error.h>
#include "tests/support/json.h"

namespace coshard::overlap {
namespace {

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override { std::filesystem::remove_all(file_); }
  std::vector<RankTrace> read(const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    return read_trace(file_);
  }
  std::string why_not() {
    try {
      (void)read_trace(file_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      const std::string why = error.what();
      EXPECT_EQ(why.find('\n'), std::string::npos) << why;
      EXPECT_TRUE(why.starts_with(file_ + ": ")) << why;
      return why.substr(std::min(why.size(), file_.size() + 2));
    }
    return "it was read";
  }
  std::string why_not(const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    return why_not();
  }
  std::string file_ = testing::temporary_path("a.trace.json");
};

std::string written() {
  std::vector<ChromeTrace> ranks(2, ChromeTrace(4));
  CommEvent event;
  event.id = 1;
  event.kind = CollectiveKind::AllReduce;
  event.label = "P(sum)->R";
  event.bytes = 64;
  event.communicator = "tp";
  event.link = "20us,1GB/s";
  event.where = {"../train.cpp", 88};
  for (ChromeTrace& rank : ranks) {
    rank.issued(event, 2000);
    rank.ready(event, 2000, 9000, 9500);
    rank.computed("matmul", ComputeClass::Gemm, 1000, 2501);
    rank.computed("add", ComputeClass::Other, 3000, 3001);
  }
  ranks[1].computed("add", ComputeClass::Other, 5000, 6000);
  std::ostringstream out;
  write_chrome_trace(out, ranks);
  return out.str();
}

TEST_F(TraceFile, GivesWhatWasWritten) {
  const std::vector<RankTrace> ranks = read(written());
  ASSERT_EQ(ranks.size(), 2U);
  for (int r = 0; r < 2; ++r) {
    const RankTrace& rank = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.rank, r);
    EXPECT_EQ(rank.link, "20us,1GB/s");
    EXPECT_EQ(rank.dropped, r);
    ASSERT_EQ(rank.events.size(), 4U);
    const TraceEvent &await = rank.events[0], &kernel = rank.events[1];
    const TraceEvent& collective = rank.events[3];
    EXPECT_EQ(await.kind, TraceEvent::Kind::Await);
    EXPECT_EQ(await.name, "all_reduce P(sum)->R");
    EXPECT_EQ(await.time, (Interval{1000, 8500}));
    EXPECT_EQ(kernel.name, "matmul");
    EXPECT_EQ(kernel.kind, TraceEvent::Kind::Kernel);
    EXPECT_EQ(kernel.time, (Interval{0, 1501}));
    EXPECT_EQ(collective.name, "all_reduce P(sum)->R");
    EXPECT_EQ(collective.kind, TraceEvent::Kind::Collective);
    EXPECT_EQ(collective.time, (Interval{1000, 8000}));
    EXPECT_EQ(collective.communicator, "tp");
    EXPECT_EQ(collective.at, "train.cpp:88");
    EXPECT_EQ(collective.bytes, 64);
  }
}

TEST_F(TraceFile, AnAwaitIsAsLongAsItWasNotAsItIsDrawn) {
  std::vector<ChromeTrace> ranks(1);
  CommEvent event;
  event.id = 1;
  ranks[0].issued(event, 1000);
  ranks[0].ready(event, 3000, 2000, 3000);
  std::ostringstream out;
  write_chrome_trace(out, ranks);
  const RankTrace rank = read(out.str()).at(0);
  EXPECT_EQ(times_of(rank, TraceEvent::Kind::Await).length(), 0);
  EXPECT_EQ(times_of(rank, TraceEvent::Kind::Collective).intervals(),
            (std::vector<Interval>{{0, 1000}}));
}

TEST_F(TraceFile, WhatIsNoTraceOfCoshardIsRefusedInOneLine) {
  EXPECT_EQ(why_not(), "No such file or directory");
  EXPECT_EQ(why_not(""), "is empty");
  EXPECT_EQ(why_not("hello"), "is not JSON: byte 1 is not what must follow there");
  EXPECT_TRUE(why_not("[1, 2").starts_with("is cut off: ")) << why_not("[1, 2");
  for (const char* other :
       {"{}", "[]", "7", "null", R"({"traceEvents":[{"ph":"X"},3,{}]})",
        R"({"traceEvents":[{"ph":"X","cat":"kernel","pid":1,"ts":1,"dur":1}]})"})
    EXPECT_TRUE(why_not(other).starts_with("has no events of coshard")) << why_not(other);
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  EXPECT_EQ(why_not(), "Is a directory");
}

TEST_F(TraceFile, OfAPipeIsReadAndRefusedAsAFileIs) {
  const auto piped = [](const std::string& text) -> std::string {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
    const std::string name = str_cat("/dev/fd/", ends[0]);
    std::string said;
    try {
      said = str_cat(read_trace(name).size(), " ranks");
    } catch (const Error& error) {
      said = std::string(error.what()).substr(name.size() + 2);
    }
    ::close(ends[0]);
    return said;
  };
  EXPECT_EQ(piped(written()), "2 ranks");
  EXPECT_EQ(piped(""), "is empty");
  EXPECT_EQ(piped("hello"), "is not JSON: byte 1 is not what must follow there");
  EXPECT_EQ(piped("[1, 2"), "is cut off: its JSON goes on where the file ends, after 5 bytes");
}

TEST(TraceSpan, IsFromTheFirstEventOfAllRanksToTheEndOfTheLast) {
  const auto event = [](std::int64_t begin, std::int64_t end) {
    return TraceEvent{TraceEvent::Kind::Kernel, {begin, end}, "", "", "", "", 0};
  };
  const std::vector<RankTrace> trace = {{0, "", 0, {event(20, 90), event(30, 40)}},
                                        {1, "", 0, {}},
                                        {2, "", 0, {event(15, 15), event(60, 70)}}};
  EXPECT_EQ(span_of(trace), (Interval{15, 90}));
  EXPECT_EQ(span_of({&trace[2], 1}), (Interval{15, 70}));
  EXPECT_EQ(span_of({&trace[1], 1}), Interval());
}

TEST_F(TraceFile, CutOffAnywhereItIsSaid) {
  const std::string whole = written();
  for (std::size_t size = 1; size + 2 < whole.size(); size += 97) {
    const std::string why = why_not(whole.substr(0, size));
    EXPECT_TRUE(why.starts_with("is cut off: ")) << size << ": " << why;
  }
}

std::string named(int pid, const std::string& name) {
  return str_cat(R"({"ph":"M","name":"process_name","pid":)", pid, R"(,"args":{"name":")", name,
                 R"("}})");
}

std::string kernel(int pid, const std::string& more) {
  return str_cat(R"({"ph":"X","cat":"kernel","pid":)", pid, R"(,"dur":1,)", more, '}');
}

TEST_F(TraceFile, OfProcessesThatAreNoRankNothingIsChecked) {
  const auto trace = [](const std::string& other) {
    return R"({"traceEvents":[)" + kernel(7, R"("ts":1.7e15)") + ',' + kernel(0, R"("ts":1)") +
           ',' + named(0, "rank 0") + ',' + named(7, other) + "]}";
  };
  for (const char* other : {"python", "rank one", "rank 4294967296"})
    EXPECT_EQ(read(trace(other)).size(), 1U) << other;
  EXPECT_EQ(why_not(trace("rank 1")), "event 1 has 'ts' 1.7e+15, outside of 0 to 1e+15");
  EXPECT_EQ(why_not(R"({"traceEvents":[)" + kernel(7, R"("ts":1.7e15)") + "]}"),
            "has no events of coshard; write_chrome_trace and `train --trace` write some");
}

TEST_F(TraceFile, TwoProcessesOfOneRankAreRefused) {
  EXPECT_EQ(why_not(R"({"traceEvents":[)" + kernel(1, R"("ts":1)") + ',' + kernel(2, R"("ts":1)") +
                    ',' + named(1, "rank 0") + ',' + named(2, "rank 0") + "]}"),
            "has two processes named 'rank 0'");
}

TEST_F(TraceFile, BytesMayBeWrittenWithAnExponentAndNamesHoldNoControlCharacters) {
  const std::vector<RankTrace> ranks = read(
      R"({"traceEvents":[)" + kernel(0, R"("ts":1,"name":"a\u001b[31m","args":{"bytes":1e3})") +
      ',' + named(0, "rank 0") + "]}");
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks[0].events[0].bytes, 1000);
  EXPECT_EQ(ranks[0].events[0].name, "a?[31m");
}

// Though they are drawn one after the other.
TEST_F(TraceFile, CollectivesInFlightTogetherKeepTheirTimes) {
  std::vector<ChromeTrace> ranks(1);
  CommEvent first, second;
  first.id = 1, second.id = 2;
  ranks[0].issued(first, 1000);
  ranks[0].issued(second, 2000);
  ranks[0].ready(second, 2000, 5000, 5000);
  ranks[0].ready(first, 5000, 9000, 9000);
  std::ostringstream out;
  write_chrome_trace(out, ranks);
  std::vector<std::array<std::int64_t, 3>> found;
  const std::vector<RankTrace> trace = read(out.str());
  for (const TraceEvent& event : trace.front().events)
    if (event.kind == TraceEvent::Kind::Collective)
      found.push_back({event.time.begin, event.time.end, event.queued_ns});
  EXPECT_EQ(found, (std::vector<std::array<std::int64_t, 3>>{{1000, 4000, 0}, {0, 8000, 4000}}));
}

TEST_F(TraceFile, AnEventWithoutAProperTimeIsNamed) {
  const auto with = [](const std::string& times) {
    return R"({"traceEvents":[{},{"ph":"X","cat":"kernel","pid":0,)" + times + "}," +
           named(0, "rank 0") + "]}";
  };
  EXPECT_EQ(why_not(with(R"("ts":"1","dur":1)")), "event 2 has no number 'ts'");
  EXPECT_EQ(why_not(with(R"("ts":1)")), "event 2 has no number 'dur'");
  EXPECT_EQ(why_not(with(R"("ts":1,"dur":-1)")), "event 2 has 'dur' -1, outside of 0 to 1e+15");
  EXPECT_EQ(why_not(with(R"("ts":1,"dur":1,"args":{"bytes":-5})")),
            "event 2 has 'bytes' -5, outside of 0 to 1e+15");
  EXPECT_EQ(why_not(with(R"("ts":1,"dur":1,"args":{"queued_us":2})")),
            "event 2 was issued before time 0");
  EXPECT_EQ(why_not(with(R"("ts":1e400,"dur":1)")),
            "has a number that is too large, after 1 events");
}

}  // namespace
}  // namespace coshard::overlap
