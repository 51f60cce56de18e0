#include "tests/dtensor/simulation/random_dtensors.h"

#include "runtime/launch/simulate.h"
#include "tests/dtensor/simulation/player.h"

namespace coshard::test {
namespace {
using namespace std::chrono_literals;

Task<void> one_rank(World& world, std::uint64_t seed, const std::optional<Difference>& difference,
                    RankReport& report) {
  Player player(world, seed, difference, report);
  Task<void> whole = player.play();
  co_await std::move(whole);
}

}  // namespace

Report run_random_dtensors(std::uint64_t seed, const std::optional<Difference>& difference) {
  Dice dice(seed ^ 0xd1ce);
  WorldOptions options;
  options.ranks = 2 + dice.below(4);
  options.timeout = 60s;
  if (dice.one_in(3)) options.link = Link{std::chrono::microseconds(1 + dice.below(500)), 1e8};
  SimOptions sim;
  sim.most_turns = 2'000'000;
  if (difference && difference->how == Differs::Dies && difference->rank < options.ranks)
    sim.deaths.push_back({difference->rank, difference->at});
  Report report;
  report.ranks.resize(static_cast<std::size_t>(options.ranks));
  try {
    simulate(
        options,
        [&](World& world) {
          RankReport& its = report.ranks[static_cast<std::size_t>(world.rank())];
          return testing::note_end(one_rank(world, seed, difference, its), its.end);
        },
        seed, sim);
  } catch (const Boom&) {
    report.boom = true;
    report.end = testing::end_of(std::current_exception());
  } catch (...) {
    report.end = testing::end_of(std::current_exception());
  }
  return report;
}

}  // namespace coshard::test
