#pragma once
// Ranks on threads in several MPI processes inside one process.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/mpi/mpi_ranks.h"
#include "runtime/launch/simulated_mpi.h"

namespace coshard::testing {

// A network whose time is counted in polls.
class FakeMpi : public SimulatedMpi {
 public:
  FakeMpi(int processes, std::uint64_t seed, std::map<int, int> deaths = {})
      : SimulatedMpi({.processes = processes,
                      .seed = seed,
                      .slowest = 4 * processes,
                      .deaths = std::move(deaths)}) {}
};

// A thread group over several such processes: each has a ThreadGroup of its own.
class FakeProcesses {
 public:
  // `per_process` divides `ranks`.
  // `deaths`: process -> after how many of its messages; the others are not notified.
  FakeProcesses(int ranks, int per_process, std::uint64_t seed, std::string name = "tp",
                std::map<int, int> deaths = {});
  ~FakeProcesses();
  ThreadGroup& group_of(int rank) {
    return *groups_[static_cast<std::size_t>(rank / per_process_)];
  }
  // As the directory does when a rank's program has ended.
  void leave(int rank);
  FakeMpi& mpi() { return mpi_; }
  MpiEngine& engine(int process) { return *engines_[static_cast<std::size_t>(process)]; }

 private:
  int per_process_;
  FakeMpi mpi_;
  std::vector<std::shared_ptr<MpiEngine>> engines_;
  std::vector<std::shared_ptr<MpiRanks>> ranks_;
  std::vector<std::unique_ptr<ThreadGroup>> groups_;
};

// Runs body(communicator, rank) on every rank; returns each one's error, "" for none.
template <class Body>
std::vector<std::string> on_processes(int ranks, int per_process, std::uint64_t seed,
                                      const Body& body) {
  FakeProcesses processes(ranks, per_process, seed);
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto mine = processes.group_of(rank).communicator(rank);
      mine->set_timeout(20'000'000'000);
      try {
        body(*mine, rank);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
      }
      mine.reset();
      processes.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace coshard::testing
