// The gate: forecasts of schedules, and what it refuses.
#include "dtensor/ops/overlap_gate.h"

#include <gtest/gtest.h>

#include "dtensor/mesh/calibration.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// Products of 1 ms per shard.
OverlapCase one_ms(int ranks, std::int64_t shard_ns) {
  OverlapCase c;
  c.ranks = ranks, c.rows = 1024;
  c.row_ns_x1024 = kMs;
  c.shard_ns = shard_ns;
  return c;
}

double efficiency(const Schedule& s, std::int64_t compute_ns) {
  return 1 - static_cast<double>(s.ns - compute_ns) / static_cast<double>(s.plain_ns - compute_ns);
}

TEST(OverlapGate, HidesAGatherThatTakesAsLongAsItsProducts) {
  for (const int ranks : {2, 4, 8}) {
    const Schedule s = gather_schedule(one_ms(ranks, kMs), Overlap::Auto);
    ASSERT_TRUE(s) << ranks;
    EXPECT_GT(efficiency(s, ranks * kMs), 0.97) << ranks;
  }
}

TEST(OverlapGate, HidesAScatterThatTakesAsLongAsItsProducts) {
  for (const int ranks : {2, 4, 8}) {
    const Schedule s = scatter_schedule(one_ms(ranks, kMs), Overlap::Auto);
    ASSERT_TRUE(s) << ranks;
    EXPECT_GT(efficiency(s, ranks * kMs), 0.97) << ranks;
  }
}

TEST(OverlapGate, CutsAReductionIntoAsManyPiecesAsPay) {
  const OverlapCase c = one_ms(2, kMs / 2);
  const Schedule s = reduce_schedule(c, Overlap::Auto);
  EXPECT_EQ(s.pieces, 8);
  OverlapCase slow = c;
  slow.latency_ns = kMs / 4;  // of each piece
  EXPECT_LT(reduce_schedule(slow, Overlap::Auto).pieces, 8);
}

TEST(OverlapGate, PicksThePlainScheduleWhereThereIsNothingToHide) {
  const OverlapCase fast = one_ms(2, 10);
  EXPECT_FALSE(gather_schedule(fast, Overlap::Auto));
  EXPECT_FALSE(scatter_schedule(fast, Overlap::Auto));
  EXPECT_FALSE(reduce_schedule(fast, Overlap::Auto));
  EXPECT_EQ(gather_schedule(fast, Overlap::Auto).ns, gather_schedule(fast, Overlap::Auto).plain_ns);
}

TEST(OverlapGate, PicksThePlainScheduleForAFewRows) {
  OverlapCase few = one_ms(4, 4'000);
  few.rows = 4, few.row_ns_x1024 = 1024 * 500;
  EXPECT_FALSE(gather_schedule(few, Overlap::Auto));
  EXPECT_FALSE(scatter_schedule(few, Overlap::Auto));
}

// In backward, weight gradients hide a collective whatever its schedule.
TEST(OverlapGate, PicksThePlainScheduleWhereOtherWorkHidesTheCollective) {
  for (const auto& schedule : {gather_schedule, scatter_schedule, reduce_schedule}) {
    OverlapCase c = one_ms(4, kMs);
    EXPECT_TRUE(schedule(c, Overlap::Auto));
    c.meanwhile_ns = 8 * kMs;
    EXPECT_FALSE(schedule(c, Overlap::Auto));
    c.meanwhile_ns = kMs / 2;  // too little
    EXPECT_TRUE(schedule(c, Overlap::Auto));
  }
}

TEST(OverlapGate, SaysHowLongAScheduleWaits) {
  const OverlapCase slow = one_ms(4, 3 * kMs), fast = one_ms(4, kMs / 2);
  for (const auto& schedule : {gather_schedule, scatter_schedule}) {
    // Three shards of 3 ms, each under the product of another; smaller pieces begin earlier.
    EXPECT_GE(schedule(slow, Overlap::Auto).exposed_ns, 5 * kMs);
    EXPECT_LE(schedule(slow, Overlap::Auto).exposed_ns, 6 * kMs + kMs / 10);
    EXPECT_LT(schedule(fast, Overlap::Auto).exposed_ns, kMs / 10);
  }
}

TEST(OverlapGate, IsNeverForecastToLose) {
  std::uint64_t state = 7;
  const auto draw = [&state](std::int64_t most) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(most));
  };
  int overlapped = 0;
  for (int i = 0; i < 2000; ++i) {
    OverlapCase c;
    c.ranks = 2 + static_cast<int>(draw(7));
    c.rows = 1 + draw(4096);
    c.row_ns_x1024 = 1 + draw(1 << 24);
    c.latency_ns = draw(200'000);
    c.shard_ns = draw(20 * kMs);
    c.meanwhile_ns = draw(2) * draw(20 * kMs);
    for (const auto& schedule : {gather_schedule, scatter_schedule, reduce_schedule}) {
      const Schedule s = schedule(c, Overlap::Auto);
      EXPECT_LE(s.ns, s.plain_ns);
      overlapped += s ? 1 : 0;
    }
  }
  EXPECT_GT(overlapped, 1000);
}

TEST(OverlapGate, IsAskedForASchedule) {
  const OverlapCase slow = one_ms(2, kMs), fast = one_ms(2, 0);
  for (const auto& schedule : {gather_schedule, scatter_schedule, reduce_schedule}) {
    EXPECT_FALSE(schedule(slow, Overlap::Off));
    EXPECT_TRUE(schedule(fast, Overlap::Always));
    OverlapCase alone = slow;
    alone.ranks = 1;
    EXPECT_FALSE(schedule(alone, Overlap::Always));
  }
}

TEST(OverlapGate, TakesGemmTimesFromTheCalibrationOfTheMesh) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {2}, {"tp"});
    Calibration measured;
    measured.products.emplace_back().ns.fill(7'000);
    const DeviceMesh mesh = plain.with_calibration(std::make_shared<const Calibration>(measured));
    const auto ns = [](const DeviceMesh& of, DType dtype) {
      return gemm_model(of, dtype).ns(8, 128, 128);
    };
    EXPECT_EQ(ns(mesh, DType::F32), 7'000);
    EXPECT_EQ(ns(mesh["tp"], DType::F32), 7'000);
    EXPECT_EQ(ns(mesh, DType::BF16), ns(plain, DType::BF16)) << "not measured";
    EXPECT_FALSE(mesh == plain);
    EXPECT_TRUE(mesh == plain.with_calibration(std::make_shared<const Calibration>(measured)));
    EXPECT_TRUE(mesh.with_links({{1, 2}}).calibration() == mesh.calibration());
    co_return;
  });
}

// Each of them alone would wait for the link; together they hide it, or the other way round.
TEST(OverlapGate, JudgesProductsOfOneGatherTogether) {
  OverlapCase one = one_ms(4, kMs / 3);
  one.row_ns_x1024 /= 400;  // a shard's product takes a 400th of its transfer
  EXPECT_FALSE(gather_schedule(one, Overlap::Auto)) << "there is nothing to hide it under";
  OverlapCase many = one;
  many.products = 30;
  EXPECT_TRUE(gather_schedule(many, Overlap::Auto));
}

}  // namespace
}  // namespace coshard
