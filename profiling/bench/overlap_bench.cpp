// How much of a collective the sibling branch hides: two branches that each compute and reduce, on
// an emulated link whose collectives take as long as a computation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/gate_draws.h"
#include "profiling/bench/schedules.h"
#include "profiling/bench/woven.h"

namespace coshard::bench {
namespace {

constexpr std::int64_t kWidth = 384;  // of the matrices; a matmul is about half a millisecond
constexpr std::int64_t kElements = 64 << 10;  // of an all_reduce: 256 KiB, of f32
constexpr double kLatency = 20;               // us

// The data of one rank.
struct Workload {
  Workload(World& world, int matmuls_of_one, int steps_of_one)
      : mesh(init_device_mesh(world, {world.size()}, {"tp"})),
        partial(from_local(zeros(world.device(), Shape{kElements}), mesh, Partial())),
        a(randn(world.device(), Shape{kWidth, kWidth})),
        b(randn(world.device(), Shape{kWidth, kWidth})),
        matmuls(matmuls_of_one),
        steps(steps_of_one) {}
  DeviceMesh mesh;
  DTensor partial;
  Tensor a, b;
  int matmuls, steps;  // per computation, per branch

  void compute() const {
    for (int i = 0; i < matmuls; ++i) matmul(a, b).wait();
  }
};

Task<void> reduce_then_compute(const Workload& work) {
  for (int i = 0; i < work.steps; ++i) {
    const Redistribution reduced = work.partial.redistribute(Replicate());
    co_await reduced;
    work.compute();
  }
}

Task<void> compute_then_reduce(const Workload& work) {
  for (int i = 0; i < work.steps; ++i) {
    work.compute();
    const Redistribution reduced = work.partial.redistribute(Replicate());
    co_await reduced;
  }
}

Task<void> two_branches(const Workload& work) {
  Task<void> both = when_all(reduce_then_compute(work), compute_then_reduce(work));
  co_await std::move(both);
}

// The same work, with each collective awaited at once.
Task<void> serial(const Workload& work) {
  Task<void> first = reduce_then_compute(work);
  co_await std::move(first);
  Task<void> second = compute_then_reduce(work);
  co_await std::move(second);
}

Task<void> one_branch(const Workload& work) {
  Task<void> alone = when_all(serial(work));
  co_await std::move(alone);
}

Task<void> compute_only(const Workload& work) {
  for (int i = 0; i < 2 * work.steps; ++i) work.compute();
  co_return;
}

// A round runs each of them once.
struct Round {
  double serial_ms = 0, overlapped_ms = 0, one_branch_ms = 0, compute_ms = 0;
};

Task<void> measure(World& world, const Workload& work, int rounds, std::vector<Round>& found) {
  for (int i = -1; i < rounds; ++i) {  // the first warms up
    Round round;
    Task<double> a = time_of(world, serial(work));
    round.serial_ms = co_await std::move(a);
    Task<double> b = time_of(world, two_branches(work));
    round.overlapped_ms = co_await std::move(b);
    Task<double> c = time_of(world, one_branch(work));
    round.one_branch_ms = co_await std::move(c);
    Task<double> d = time_of(world, compute_only(work));
    round.compute_ms = co_await std::move(d);
    if (i >= 0 && world.rank() == 0) found.push_back(round);
  }
}

// All ranks compute at once, as when measured: 4 ranks on 2 cores run at half speed.
Task<void> time_computing(World& world, int matmuls, int steps, double& ms) {
  const NoGradGuard no_grad;
  const Workload work(world, matmuls, steps);
  std::vector<double> times;
  for (int i = 0; i < 4; ++i) {
    Task<double> timed = time_of(world, compute_only(work));
    times.push_back(co_await std::move(timed) / (2 * steps));
  }
  if (world.rank() == 0) ms = robust_stats({times.begin() + 1, times.end()}).median;
}

Task<void> measure_rank(World& world, const OverlapOptions& options, int matmuls,
                        std::vector<Round>& found) {
  const NoGradGuard no_grad;
  const Workload work(world, matmuls, options.steps);
  Task<void> measured = measure(world, work, options.rounds, found);
  co_await std::move(measured);
}

RobustStats stats_of(const std::vector<Round>& rounds, const auto& figure) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(figure(round));
  return robust_stats(values);
}

double computing_ms(const WorldOptions& world, int matmuls, int steps) {
  double ms = 0;
  const Program program = [&](World& rank) { return time_computing(rank, matmuls, steps, ms); };
  run_ranks(world, program);
  return ms;
}

// A link on which an all_reduce of kElements takes `ms`.
Link link_of(int ranks, double ms) {
  Collective reduce;
  reduce.kind = CollectiveKind::AllReduce;
  const std::int64_t bytes = algorithmic_bytes(reduce, ranks, kElements * 4);
  const double transfer_us = ms * 1e3 - kLatency;
  CS_REQUIRE(transfer_us > 0, "bench overlap: a computation of ", ms,
             " ms is not longer than the latency of the link");
  return {kLatency, static_cast<double>(bytes) / transfer_us};
}

void add_results(Report& report, int ranks, double link_ms, const std::vector<Round>& rounds) {
  const auto add = [&](const char* name, const RobustStats& stats, const char* unit) {
    report.results.push_back(measured(fmt::format("{}_{}_ranks", name, ranks), stats, unit));
  };
  add("serial", stats_of(rounds, [](const Round& r) { return r.serial_ms; }), "ms");
  add("two_branches", stats_of(rounds, [](const Round& r) { return r.overlapped_ms; }), "ms");
  add("compute", stats_of(rounds, [](const Round& r) { return r.compute_ms; }), "ms");
  report.results.push_back(
      {fmt::format("emulated_link_{}_ranks", ranks), link_ms, "ms", {}, false, {}, {}});
  const auto share = [link_ms](const Round& r, double ms) {
    return (r.serial_ms - ms) / std::min(r.compute_ms, link_ms);
  };
  const RobustStats hidden =
      stats_of(rounds, [&](const Round& r) { return share(r, r.overlapped_ms); });
  RobustStats control = stats_of(rounds, [&](const Round& r) { return share(r, r.one_branch_ms); });
  report.results.push_back(
      measured(fmt::format("hidden_share_{}_ranks", ranks), hidden, "share", 0.97, true));
  if (control.median < 0)  // to be near 0, on either side
    control = {-control.median, -control.max, -control.min, control.spread, control.count};
  report.results.push_back(
      measured(fmt::format("hidden_share_one_branch_{}_ranks", ranks), control, "share", 0.05));
}

void measure_ranks(Report& report, const OverlapOptions& options, int ranks) {
  WorldOptions world = options.world;
  world.ranks = ranks;
  world.threads = 1;
  constexpr int kFew = 4;
  const double one_ms = computing_ms(world, kFew, options.steps) / kFew;
  const int matmuls = std::max(1, static_cast<int>(std::lround(options.compute_ms / one_ms)));
  const double link_ms = computing_ms(world, matmuls, options.steps);
  world.link = link_of(ranks, link_ms);
  report.note(fmt::format("emulated_link_{}_ranks", ranks), to_string(*world.link));
  std::vector<Round> rounds;
  const Program program = [&](World& rank) { return measure_rank(rank, options, matmuls, rounds); };
  run_ranks(world, program);
  add_results(report, ranks, link_ms * 2 * options.steps, rounds);
}

}  // namespace

Report bench_overlap(const OverlapOptions& options) {
  Report report("overlap");
  if (options.draws > 0) {
    measure_draws(report, options);
    return report;
  }
  report.note("calibration", "a collective takes as long as a computation while all ranks compute");
  const std::vector<int> all = options.ranks == 0 ? std::vector{2, 4} : std::vector{options.ranks};
  for (const int ranks : all) {
    measure_ranks(report, options, ranks);
    measure_schedules(report, options, ranks);
    measure_backward_schedules(report, options, ranks);
    measure_transformer(report, options, ranks);
    if (ranks == 2) measure_data_parallel(report, options);
    measure_woven(report, options, ranks);
  }
  return report;
}

}  // namespace coshard::bench
