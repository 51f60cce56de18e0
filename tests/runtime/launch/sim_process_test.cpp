// A process of a simulation that dies.
#include <coshard/runtime/launch/simulate.h>

#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

Task<void> barriers(World& world) {
  for (int i = 0; i < 20; ++i) {
    Collective barrier;
    barrier.kind = CollectiveKind::Barrier;
    co_await world.communicator()->issue(barrier);
  }
}

std::string end_of(const SimOptions& sim, std::uint64_t seed) {
  try {
    simulate({.ranks = 4}, barriers, seed, sim);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(SimProcess, ThatDiesIsNamedWithItsRanks) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SimOptions sim;
    sim.processes = 2;
    sim.network.deaths.push_back({1, static_cast<int>(seed % 7)});
    const std::string text = end_of(sim, seed);
    EXPECT_NE(text.find("ranks 2 to 3, process 1"), std::string::npos) << seed << ": " << text;
    EXPECT_NE(text.find("has died"), std::string::npos) << seed << ": " << text;
  }
}

TEST(SimProcess, ThatDiesAfterAllItsMessagesHurtsNobody) {
  SimOptions sim;
  sim.processes = 2;
  sim.network.deaths.push_back({1, 1'000'000});
  EXPECT_EQ(end_of(sim, 1), "");
}

}  // namespace
}  // namespace coshard
