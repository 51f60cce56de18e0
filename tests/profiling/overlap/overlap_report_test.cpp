#include "profiling/overlap/overlap_report.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/profiling/chrome_trace.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/json.h"

namespace coshard::overlap {
namespace {

using Kind = TraceEvent::Kind;

TraceEvent kernel(std::int64_t begin, std::int64_t end, std::string module = "") {
  return {Kind::Kernel, {begin, end}, "matmul", std::move(module), "", "", 0};
}
TraceEvent collective(std::int64_t begin, std::int64_t end, std::string name = "all_gather S->R",
                      std::string module = "") {
  return {Kind::Collective, {begin, end}, std::move(name), std::move(module), "tp", "a.cpp:7", 10};
}
TraceEvent await(std::int64_t begin, std::int64_t end, std::string name = "all_gather S->R",
                 std::string module = "") {
  return {Kind::Await, {begin, end}, std::move(name), std::move(module), "tp", "a.cpp:7", 10};
}
TraceEvent range(std::int64_t begin, std::int64_t end) {
  return {Kind::Range, {begin, end}, "step", "", "", "", 0};
}
RankTrace rank_of(std::vector<TraceEvent> events, int rank = 0) {
  return {rank, "", 0, std::move(events)};
}
RankOverlap only(std::vector<TraceEvent> events) {
  return overlap_of({rank_of(std::move(events))}).ranks.at(0);
}

TEST(OverlapReport, ExposedIsWhatTheRankStoodStill) {
  const Whole all = only({collective(10, 30), kernel(0, 15), await(20, 32), kernel(32, 40)}).all;
  EXPECT_EQ(all.communication_ns, 20);
  EXPECT_EQ(all.compute_ns, 23);
  EXPECT_EQ(all.exposed_ns, 12);
  EXPECT_EQ(all.blocked_ns, 10) << "from 20 to 30; the rank came back late";
  EXPECT_EQ(*all.hidden(), 0.5);
  EXPECT_EQ(all.total_ns, 40);
  EXPECT_EQ(all.idle_ns, 5) << "from 15 to 20, though a collective was in flight";
  EXPECT_EQ(all.collectives, 1);
  EXPECT_EQ(all.bytes, 10);
}

TEST(OverlapReport, WhatOverlapsAndNestsCountsOnce) {
  const Whole all =
      only({kernel(0, 20), kernel(5, 10), kernel(15, 30), collective(10, 50), collective(20, 40),
            collective(45, 60), await(30, 50), await(35, 40), await(45, 60)})
          .all;
  EXPECT_EQ(all.compute_ns, 30);
  EXPECT_EQ(all.communication_ns, 50);
  EXPECT_EQ(all.exposed_ns, 30);
  EXPECT_EQ(all.blocked_ns, 30);
  EXPECT_EQ(all.collectives, 3);
}

TEST(OverlapReport, SerialHidesNothingAndWithoutCommunicationThereIsNothingToHide) {
  const Whole serial = only({kernel(0, 10), collective(10, 20), await(10, 20), kernel(20, 30),
                             collective(30, 40), await(30, 40)})
                           .all;
  EXPECT_EQ(serial.exposed_ns, 20);
  EXPECT_EQ(*serial.hidden(), 0);
  EXPECT_EQ(*only({kernel(0, 10), collective(5, 10)}).all.hidden(), 1);
  EXPECT_FALSE(only({kernel(0, 10)}).all.hidden());
}

TEST(OverlapReport, IdleIsNeither) {
  const Whole all =
      only({range(0, 100), kernel(10, 20), collective(15, 45), await(30, 40), kernel(70, 90)}).all;
  EXPECT_EQ(all.total_ns, 100);
  EXPECT_EQ(all.idle_ns, 60);
  EXPECT_EQ(all.idle_gaps, 4);
  EXPECT_EQ(all.longest_idle_ns, 30);
  EXPECT_EQ(all.total_ns, all.compute_ns + all.exposed_ns + all.idle_ns);
}

TEST(OverlapReport, AModuleIncludesItsSubmodulesAndIsBlockedByAnyAwait) {
  const RankOverlap found =
      only({kernel(0, 10, "a.b"), kernel(10, 20, "c"), collective(0, 30, "all_reduce", "a.b"),
            collective(20, 40, "all_reduce", "a"), await(20, 28, "all_reduce", "a"),
            await(28, 30, "all_reduce", "a.b"), kernel(50, 60, "model"), kernel(60, 65)});
  ASSERT_EQ(found.modules.size(), 5U);
  EXPECT_EQ(found.modules.at("a.b").compute_ns, 10);
  EXPECT_EQ(found.modules.at("a.b").exposed_ns, 2);
  EXPECT_EQ(found.modules.at("a.b").blocked_ns, 10) << "of 30, also by the other one";
  EXPECT_EQ(found.modules.at("a").exposed_ns, 10);
  EXPECT_EQ(found.modules.at("a").communication_ns, 40);
  EXPECT_EQ(found.modules.at("a").collectives, 2);
  EXPECT_EQ(found.modules.at("c").communication_ns, 0);
  EXPECT_EQ(found.modules.at("model").compute_ns, 30);
  EXPECT_EQ(found.modules.at("model").collectives, 2);
  EXPECT_EQ(found.modules.at("").compute_ns, 5);
}

TEST(OverlapReport, KindsAreToldApartByCollectiveAndPurpose) {
  const RankOverlap found = only(
      {collective(0, 10, "all_gather S(0)->R"), kernel(0, 30),
       collective(5, 40, "all_gather S(1)->R"), await(30, 40, "all_gather S(1)->R"),
       collective(50, 60, "all_reduce gradient norm"), await(50, 53, "all_reduce gradient norm"),
       await(55, 60, "all_reduce gradient norm"), collective(60, 61, "barrier")});
  ASSERT_EQ(found.kinds.size(), 4U);
  EXPECT_EQ(found.kinds.at({"all_gather", "S(0)->R"}).exposed_ns, 0);
  EXPECT_EQ(found.kinds.at({"all_gather", "S(1)->R"}).exposed_ns, 10);
  EXPECT_EQ(found.kinds.at({"all_reduce", "gradient norm"}).exposed_ns, 8);
  EXPECT_EQ(found.kinds.at({"all_reduce", "gradient norm"}).collectives, 1);
  EXPECT_EQ(found.kinds.at({"barrier", ""}).collectives, 1);
}

TEST(OverlapReport, TheLongestExposedStretchesComeFirstWithWhatWasAwaited) {
  const OverlapReport report =
      overlap_of({rank_of({collective(0, 10, "all_gather", "a"), await(0, 4, "all_gather", "a"),
                           kernel(4, 5), await(5, 10, "all_gather", "a")}),
                  rank_of({collective(0, 20, "broadcast"), await(0, 3, "barrier"),
                           await(3, 20, "all_reduce", "b")},
                          1)});
  ASSERT_EQ(report.longest.size(), 3U);
  EXPECT_EQ(report.longest[0].rank, 1);
  EXPECT_EQ(report.longest[0].time, (Interval{0, 20}));
  EXPECT_EQ(report.longest[0].collective, "all_reduce");
  EXPECT_EQ(report.longest[0].module, "b");
  EXPECT_EQ(report.longest[0].at, "a.cpp:7");
  EXPECT_EQ(report.longest[1].time, (Interval{5, 10}));
  std::vector<TraceEvent> many;
  for (int i = 0; i < 100; ++i) many.push_back(await(10 * i, 10 * i + 1 + i % 9));
  EXPECT_EQ(overlap_of({rank_of(many)}).longest.size(), 20U);
}

TEST(OverlapReport, EctIsKnownByABaselineOfTheSameSteps) {
  const std::vector<RankTrace> serial = {
      rank_of({range(0, 100), kernel(0, 60), collective(60, 100)})};
  const std::vector<RankTrace> whole = {rank_of({range(0, 60), kernel(0, 60)})};
  const std::vector<RankTrace> trace = {rank_of({range(0, 70), collective(0, 40), kernel(0, 64)})};
  OverlapReport report = overlap_of(trace);
  EXPECT_FALSE(report.ranks[0].all.ect_ns);
  add_baseline(report, trace, serial);
  EXPECT_EQ(*report.ranks[0].all.ect_ns, 10);
  EXPECT_EQ(*report.ranks[0].all.efficiency, 0.75);
  report = overlap_of(trace);
  add_baseline(report, trace, whole);  // nothing to compare with: it does not communicate
  EXPECT_EQ(*report.ranks[0].all.ect_ns, 10);
  EXPECT_FALSE(report.ranks[0].all.efficiency);
  std::vector<RankTrace> elsewhere = serial;
  elsewhere[0].link = "20us,1GB/s";
  report = overlap_of(trace);
  add_baseline(report, trace, elsewhere);
  EXPECT_FALSE(report.ranks[0].all.efficiency);
  EXPECT_EQ(*report.ranks[0].all.ect_ns, 10);
  EXPECT_EQ(report.why_no_efficiency,
            "the baseline is on a link of 20us,1GB/s, the trace on no emulated link");
  EXPECT_THROW(add_baseline(report, trace, {rank_of({kernel(0, 1)})}), Error);
  EXPECT_THROW(add_baseline(report, trace, {}), Error);
}

std::string why_not(const RankTrace& trace, const RankTrace& baseline) {
  OverlapReport report = overlap_of({trace});
  try {
    add_baseline(report, {trace}, {baseline});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OverlapReport, ABaselineOfAnotherRunIsRefusedAndBothAreNamed) {
  RankTrace trace = rank_of({kernel(0, 60), collective(60, 100)}), other = trace;
  trace.about = {{"plan", "tp-sp"}, {"seq", "8"}};
  EXPECT_EQ(why_not(trace, other), "");  // of which nothing is known
  other.about = {{"dtype", "f32"}, {"plan", "tp-sp"}};
  EXPECT_EQ(why_not(trace, other), "");
  other.about["plan"] = "tp";
  EXPECT_EQ(why_not(trace, other), "the baseline is of plan tp, the trace of plan tp-sp");
  trace.about["weave"] = "2", other.about = {{"plan", "tp-sp"}, {"weave", "1"}};
  EXPECT_EQ(why_not(trace, other), "");
  EXPECT_EQ(why_not(other, trace), "the baseline is of a run with --weave 2: record it without");
  trace.about.erase("weave"), other.about = {{"simulated", "8 ranks"}};
  EXPECT_EQ(why_not(trace, other), "the baseline is a simulation, the trace is not");
  EXPECT_EQ(why_not(other, trace), "the baseline is not a simulation, the trace is");
  trace.about = {{"simulated", "8 ranks (tp=8 of g.json)"}};  // the same GPU by another name
  EXPECT_EQ(why_not(trace, other), "");
}

TEST(OverlapReport, ABaselineOfAnotherModelIsRefusedUnlessEventsWereDropped) {
  const auto module = [](const char* name) {
    return TraceEvent{Kind::Module, {0, 90}, name, "", "", "", 0};
  };
  const RankTrace trace = rank_of({module("layers.0"), kernel(0, 60)});
  RankTrace other = rank_of({module("layers.0"), module("layers.1"), kernel(0, 60)});
  EXPECT_EQ(why_not(trace, other),
            "the baseline must be of the same model: module layers.1 is only in the baseline");
  EXPECT_EQ(why_not(other, trace),
            "the baseline must be of the same model: module layers.1 is only in the trace");
  other.dropped = 1;
  EXPECT_EQ(why_not(trace, other), "");
}

TEST(OverlapReport, TheMeanCountsAPartThatARankLacksAsNothing) {
  OverlapReport report = overlap_of(
      {rank_of({collective(0, 10, "barrier", "a"), await(5, 10, "barrier", "a"), kernel(0, 5)}),
       rank_of({kernel(0, 8)}, 1)});
  const RankOverlap mean = mean_of(report);
  EXPECT_EQ(mean.rank, -1);
  EXPECT_EQ(mean.all.communication_ns, 5);
  EXPECT_EQ(mean.all.exposed_ns, 3);  // 2.5
  EXPECT_EQ(mean.all.total_ns, 9);
  EXPECT_EQ(mean.modules.at("a").communication_ns, 5);
  EXPECT_FALSE(mean.all.ect_ns);
  report.ranks[0].all.ect_ns = 2;
  EXPECT_FALSE(mean_of(report).all.ect_ns);
  report.ranks[1].all.ect_ns = 6;
  EXPECT_EQ(*mean_of(report).all.ect_ns, 4);
}

// Computes for half as long as the link takes; awaits before that, or after it.
Task<void> exchange(World& world, bool overlapped) {
  constexpr std::int64_t kComputing = 20'000'000;
  DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  DTensor sharded = from_local(zeros(world.device(), Shape{256}), mesh, Shard(0));
  const Tensor a = randn(world.device(), Shape{128, 128});
  matmul(a, a).wait();
  for (int i = 0; i < 3; ++i) {
    const Redistribution whole = sharded.redistribute(Replicate());
    if (!overlapped) co_await whole;
    const std::int64_t begin = now_ns();
    while (now_ns() - begin < kComputing) matmul(a, a).wait();
    if (overlapped) co_await whole;
  }
}

OverlapReport measured(bool overlapped) {
  WorldOptions options;
  options.ranks = 2;
  options.threads = 1;
  options.link = parse_link("40ms,1GB/s");
  std::vector<ChromeTrace> traces(2);
  run_ranks(options, [&](World& world) -> Task<void> {
    world.add_observer(&traces[static_cast<std::size_t>(world.rank())]);
    Task<void> run = exchange(world, overlapped);
    co_await std::move(run);
  });
  const std::string file = testing::temporary_path("run.trace.json");
  std::ofstream out(file);
  write_chrome_trace(out, traces);
  out.close();
  OverlapReport report = overlap_of(read_trace(file));
  std::remove(file.c_str());
  return report;
}

TEST(OverlapReport, OfARunOnAnEmulatedLinkSaysWhatRanUnderCompute) {
  const OverlapReport overlapped = measured(true), serial = measured(false);
  EXPECT_EQ(overlapped.link, "40ms,1GB/s");
  ASSERT_EQ(overlapped.ranks.size(), 2U);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(overlapped.ranks[r].all.collectives, 3);
    EXPECT_GT(*overlapped.ranks[r].all.hidden(), 0.25);
    EXPECT_EQ(serial.ranks[r].all.collectives, 3);
    EXPECT_LT(*serial.ranks[r].all.hidden(), 0.25);  // the control: awaited as soon as issued
    EXPECT_GE(serial.ranks[r].all.exposed_ns, 100'000'000);
  }
}

}  // namespace
}  // namespace coshard::overlap
