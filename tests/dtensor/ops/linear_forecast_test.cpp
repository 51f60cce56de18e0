// A linear layer as the gate sees it.
#include "dtensor/ops/linear_forecast.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

const Link kSomeLink{20, 1'000, 0.5};  // 20 us, 1 GB/s

TEST(LinearForecast, CutsTheProductAsTheWeightIsCut) {
  LinearShape shape;
  shape.ranks = 4, shape.rows = 64;
  shape.in = 256, shape.out = 1001;
  shape.cut = 0;
  const OverlapCase columns = overlap_case(shape, ScheduleKind::Gather, GemmModel{}, kSomeLink);
  EXPECT_EQ(columns.n, 251);
  EXPECT_EQ(columns.k, 256);
  shape.cut = 1;
  const OverlapCase rows = overlap_case(shape, ScheduleKind::Scatter, GemmModel{}, kSomeLink);
  EXPECT_EQ(rows.n, 1001);
  EXPECT_EQ(rows.k, 64);
  shape.cut = -1;
  EXPECT_EQ(overlap_case(shape, ScheduleKind::Gather, GemmModel{}, kSomeLink).n, 1001);
}

TEST(LinearForecast, SendsInputsOfAGatherAndOutputsOfAReduction) {
  LinearShape shape;
  shape.ranks = 4, shape.rows = 64;
  shape.in = 256, shape.out = 1000;
  shape.dtype = DType::BF16;
  const OverlapCase gathered = overlap_case(shape, ScheduleKind::Gather, GemmModel{}, kSomeLink);
  EXPECT_EQ(gathered.shard_ns, 64 * 256 * 2);
  EXPECT_EQ(gathered.latency_ns, 20'000);
  EXPECT_EQ(gathered.contention_x1024, 512);
  EXPECT_EQ(gathered.ranks, 4);
  EXPECT_EQ(gathered.rows, 64);
  const OverlapCase reduced = overlap_case(shape, ScheduleKind::Reduce, GemmModel{}, kSomeLink);
  EXPECT_EQ(reduced.shard_ns, 64 * 1000 * 2);
}

TEST(LinearForecast, ARoundTakesItsLatencyAndAShard) {
  LinearShape shape;
  shape.ranks = 4, shape.rows = 64;
  shape.in = 250, shape.out = 1000;
  const Link rounds{3, 500};
  EXPECT_EQ(overlap_case(shape, ScheduleKind::Gather, {}, kSomeLink, rounds).round_ns,
            3'000 + 64 * 250 * 4 * 2);
  EXPECT_EQ(overlap_case(shape, ScheduleKind::Scatter, {}, kSomeLink, rounds).round_ns, 0);
  EXPECT_EQ(overlap_case(shape, ScheduleKind::Gather, {}, kSomeLink).round_ns, 0);
}

TEST(LinearForecast, AsksTheGateForTheSameSchedule) {
  LinearShape shape;
  shape.ranks = 2, shape.rows = 1024;
  shape.in = 1024, shape.out = 1024;
  for (const ScheduleKind kind :
       {ScheduleKind::Gather, ScheduleKind::Scatter, ScheduleKind::Reduce}) {
    shape.cut = kind == ScheduleKind::Gather ? 0 : 1;
    const OverlapCase c = overlap_case(shape, kind, GemmModel{}, {20, 400, 0});
    const Schedule s = schedule_of(kind, c, Overlap::Auto);
    EXPECT_TRUE(s);
    EXPECT_LT(s.ns, s.plain_ns);
    EXPECT_FALSE(schedule_of(kind, c, Overlap::Off));
  }
}

}  // namespace
}  // namespace coshard
