#include "profiling/bench/crowds.h"

#include <coshard/runtime/launch/world.h>
#include "profiling/bench/timed.h"

namespace coshard::bench {
namespace {

WorldOptions crowd(int ranks, int rank_threads) {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.rank_threads = rank_threads;
  return options;
}

Task<void> meet(World& world, int times) {
  for (int i = 0; i < times; ++i) {
    const Work barrier = world.communicator()->issue(Collective());
    co_await barrier;
  }
}

constexpr int kBarriers = 100;
Task<void> time_barriers(World& world, std::vector<double>& rounds) {
  Task<void> warm = meet(world, kBarriers / 10);
  co_await std::move(warm);
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    Task<void> barriers = meet(world, kBarriers);
    co_await std::move(barriers);
    if (world.rank() == 0) rounds.push_back(seconds_since(begin) / kBarriers * 1e6);
  }
}

constexpr int kSums = 100;
Task<void> add_up(World& world) {
  for (int i = 0; i < kSums; ++i) {
    float value = 1;
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.extent = 1;
    c.send = c.recv = &value;
    const Work sum = world.communicator()->issue(std::move(c));
    co_await sum;
    CS_REQUIRE(value == static_cast<float>(world.size()), "bench: ", world.size(), " ranks gave ",
               value);
  }
}

}  // namespace

Result time_barrier(int ranks) {
  std::vector<double> rounds;
  run_ranks(crowd(ranks, 0), [&](World& world) { return time_barriers(world, rounds); });
  return measured(cat("barrier_", ranks, "_ranks"), robust_stats(rounds), "us", 200);
}

Result time_sums_on_shared_threads(int ranks, int threads) {
  std::vector<double> rounds;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    run_ranks(crowd(ranks, threads), add_up);
    rounds.push_back(seconds_since(begin));
  }
  return measured(cat(kSums, "_all_reduces_", ranks, "_ranks_", threads, "_threads"),
                  robust_stats(rounds), "s", 2);
}

}  // namespace coshard::bench
