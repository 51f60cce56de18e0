// The table and the trace of one training say the same of what was exposed, on the cpu over an
// emulated link as on a device.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include <coshard/coshard.h>
#include <coshard/debug.h>
#include <coshard/runtime/launch/simulate.h>
#include "profiling/overlap/overlap_report.h"
#include "tests/support/json.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

constexpr int kRanks = 2;

struct Watched {
  std::vector<CommSummary> tables{kRanks};
  std::vector<ChromeTrace> traces{kRanks};
};

Task<void> train(World& world, Watched& watched) {
  const auto rank = static_cast<std::size_t>(world.rank());
  world.add_observer(&watched.tables[rank]);
  world.add_observer(&watched.traces[rank]);
  const DeviceMesh mesh = init_device_mesh(world, {kRanks}, {"tp"});
  nn::MLP model({.dim = 64, .ffn = 256}, world);
  ParallelPlan plan;
  plan["w[13]"] = ColwiseParallel{};
  plan["w2"] = RowwiseParallel{};
  Task<void> parallel = parallelize_module(model, mesh, plan);
  co_await std::move(parallel);
  SGD optimizer(model.parameters(), {.lr = 0.1});
  const Tensor x = counting(world, Shape{32, 64}, DType::F32, 1e-4);
  for (int step = 0; step < 3; ++step) {
    Task<Tensor> forward = model.forward(x);
    Tensor loss = co_await std::move(forward);
    Task<void> gradients = backward(loss.sum());
    co_await std::move(gradients);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    optimizer.zero_grad();
  }
  world.device()->synchronize();
  world.remove_observer(&watched.tables[rank]);
  world.remove_observer(&watched.traces[rank]);
}

void expect_equal(const CommSummary& table, const overlap::RankOverlap& traced) {
  EXPECT_GT(table.total().count, 0);
  EXPECT_EQ(traced.all.collectives, table.total().count);
  EXPECT_EQ(traced.all.exposed_ns, table.total().exposed_ns);
  // Spans of the trace are at least 100 ns long, and those that end together are a ns apart.
  const auto rounded = static_cast<double>(200 * table.total().count);
  EXPECT_NEAR(static_cast<double>(traced.all.communication_ns),
              static_cast<double>(table.total().in_flight_ns), rounded);
  EXPECT_NEAR(static_cast<double>(traced.all.blocked_ns),
              static_cast<double>(table.total().blocked_ns), rounded);
  for (const CommSummary::Row& row : table.rows())
    EXPECT_EQ(traced.kinds.at({std::string(to_string(row.kind)), row.label}).exposed_ns,
              row.exposed_ns)
        << to_string(row.kind) << ' ' << row.label;
}

// Some are awaited twice, or by nobody, or were issued before the table and the trace saw them.
Task<void> await_some(World& world, Watched& watched) {
  const auto rank = static_cast<std::size_t>(world.rank());
  const DeviceMesh mesh = init_device_mesh(world, {kRanks}, {"tp"});
  const DTensor x = ones(mesh, Shard(0), Shape{4, 4}), y = ones(mesh, Shard(1), Shape{4, 4});
  const Redistribution early = x.redistribute(Replicate());
  world.add_observer(&watched.tables[rank]);
  world.add_observer(&watched.traces[rank]);
  co_await early;
  const Redistribution awaited = x.redistribute(Replicate());
  co_await awaited;
  co_await awaited;
  const Redistribution not_awaited = y.redistribute(Replicate());
  co_await sleep_for(std::chrono::milliseconds(50));
  const Redistribution slept = x.redistribute(Replicate());
  co_await sleep_for(std::chrono::milliseconds(50));
  co_await slept;
  world.remove_observer(&watched.tables[rank]);
  world.remove_observer(&watched.traces[rank]);
}

void expect_agreement(const Watched& watched) {
  const std::string file = temporary_path("run.trace.json");
  std::ofstream out(file);
  write_chrome_trace(out, watched.traces);
  out.close();
  const overlap::OverlapReport report = overlap::overlap_of(overlap::read_trace(file));
  ASSERT_EQ(report.ranks.size(), watched.tables.size());
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    expect_equal(watched.tables[r], report.ranks[r]);
    const double exposed = static_cast<double>(report.ranks[r].all.exposed_ns) / 1e6;
    EXPECT_TRUE(json_file_holds(file, str_cat("r, exposed = ", r, ", ", exposed, R"(
counted = [e['args']['ms'] for e in d['traceEvents'] if e['ph'] == 'C' and e['pid'] == r and 'ms' in e['args']]
assert counted == sorted(counted) and abs(counted[-1] - exposed) < 1e-3 * max(1, exposed), (counted[-1], exposed))")));
    if (on_cpu()) {
      EXPECT_GT(report.ranks[r].all.exposed_ns, 0);
    }
  }
  std::remove(file.c_str());
}

TEST(Exposed, TableTraceAndCounterAgree) {
  WorldOptions options = test_options(kRanks);
  if (on_cpu()) options.link = parse_link("2ms,1GB/s");
  Watched watched;
  run_ranks(options, [&](World& world) { return train(world, watched); });
  expect_agreement(watched);
}

TEST(Exposed, AgreeOnWhatNobodyAwaits) {
  WorldOptions options{.ranks = kRanks};
  options.link = parse_link("10ms,1000GB/s");
  Watched watched;
  simulate(options, [&](World& world) { return await_some(world, watched); }, 1,
           {.slowest_transfer = std::chrono::nanoseconds(0)});
  expect_agreement(watched);
  for (const CommSummary& table : watched.tables) {
    EXPECT_EQ(table.total().count, 3);
    // By the link, as in threads: not until the await that found the data.
    const double ms = static_cast<double>(table.total().in_flight_ns) / 1e6;
    EXPECT_NEAR(ms, 20, 0.1);
  }
}

}  // namespace
}  // namespace coshard::testing
