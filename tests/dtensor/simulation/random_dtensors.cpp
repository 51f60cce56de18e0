#include "tests/dtensor/simulation/random_dtensors.h"

#include "tests/dtensor/simulation/player.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

Task<void> one_rank(World& world, std::uint64_t seed, const std::optional<Difference>& difference,
                    RankReport& report) {
  Player player(world, seed, difference, report);
  Task<void> whole = player.play();
  co_await std::move(whole);
}

int drawn_processes(int ranks, Dice& dice) {
  std::vector<int> divisors;
  for (int p = 2; p <= ranks; ++p)
    if (ranks % p == 0) divisors.push_back(p);
  return divisors.empty()
             ? 1
             : divisors[static_cast<std::size_t>(dice.below(static_cast<int>(divisors.size())))];
}

}  // namespace

Report run_random_dtensors(std::uint64_t seed, const std::optional<Difference>& difference,
                           bool spread) {
  Dice dice(seed ^ 0xd1ce);
  WorldOptions options;
  options.ranks = difference ? 2 + dice.below(4) : 1 + dice.below(8);
  options.timeout = 60s;
  if (dice.one_in(3)) options.link = Link{static_cast<double>(1 + dice.below(500)), 100};
  SimOptions sim;
  sim.most_turns = 2'000'000;
  if (spread) sim.processes = drawn_processes(options.ranks, dice);
  if (difference && difference->how == Differs::Dies && difference->rank < options.ranks)
    sim.deaths.push_back({difference->rank, difference->at});
  Report report;
  report.ranks.resize(static_cast<std::size_t>(options.ranks));
  const auto its = [&](int rank) -> RankReport& {
    return report.ranks[static_cast<std::size_t>(rank)];
  };
  static_cast<Simulated&>(report) = simulate_to_the_end(
      options, [&](World& world) { return one_rank(world, seed, difference, its(world.rank())); },
      [&](int rank) -> testing::End& { return its(rank).end; }, seed, sim);
  return report;
}

}  // namespace coshard::testing
