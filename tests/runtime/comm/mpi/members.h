#pragma once
// Groups of ranks that are spread over MPI processes.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/fake_mpi.h"

namespace coshard::testing {

// Ranks of a group, of a world with so many in each process.
struct Members {
  std::vector<int> ranks;
  int world = 0, per_process = 0;
};

inline Members all_of(int world, int per_process) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {ranks, world, per_process};
}

// Calls body(communicator of the group) on each of them.
template <class Body>
void on_members(const Members& members, std::uint64_t seed, const Body& body) {
  FakeProcesses processes(members.world, members.per_process, seed);
  std::vector<std::thread> threads;
  for (const int rank : members.ranks)
    threads.emplace_back([&, rank] {
      auto world = processes.group_of(rank).communicator(rank);
      world->set_timeout(60'000'000'000);
      auto mine = world->subgroup(members.ranks, "members");
      try {
        body(*mine, processes);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ", seed " << seed << ": " << error.what();
      }
      mine.reset();
      world.reset();
      processes.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace coshard::testing
