// A simulation of several processes is the same run for the same seed.
#include "runtime/launch/simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>

namespace coshard {
namespace {

std::vector<std::string> events_of_seed(std::uint64_t seed) {
  std::vector<std::string> events;
  SimOptions sim;
  sim.processes = 2;
  sim.on_event = [&events](const SimEvent& event) {
    events.push_back(str_cat(event.time_ns, " rank ", event.rank, ' ', event.what));
  };
  const Program program = [](World& world) -> Task<void> {
    std::vector<float> data(5000, 1.0F);
    for (int i = 0; i < 5; ++i) {
      Collective sum;
      sum.kind = CollectiveKind::AllReduce;
      sum.extent = static_cast<std::int64_t>(data.size());
      sum.send = sum.recv = data.data();
      co_await world.communicator()->issue(sum);
    }
    EXPECT_EQ(data[0], 1024.0F);
  };
  simulate({.ranks = 4}, program, seed, sim);
  return events;
}

TEST(Simulation, OfSeveralProcessesRepeatsWithItsSeed) {
  const std::vector<std::string> first = events_of_seed(1);
  EXPECT_GT(first.size(), 20U);
  EXPECT_EQ(events_of_seed(1), first);
  EXPECT_NE(events_of_seed(2), first);
}

TEST(Simulation, ProcessesThatDoNotDivideTheRanksAreAnError) {
  SimOptions sim;
  sim.processes = 3;
  EXPECT_THROW(simulate(
                   {.ranks = 4}, [](World&) -> Task<void> { co_return; }, 1, sim),
               Error);
}

}  // namespace
}  // namespace coshard
