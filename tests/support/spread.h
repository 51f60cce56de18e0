#pragma once
// Worlds whose ranks are in several processes: the behavior of programs must not depend on it.
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>

namespace coshard {
class RankDirectory;
}

namespace coshard::testing {

// From now on CPU worlds whose size the number of processes divides are spread over them, one at a
// time; other worlds have all ranks in one process. `how`: "1", "2", …: that many ranks in each of
// 2 to 8 fake processes inside this one; "mpi": over the processes that mpirun has started with
// this one, which must run the same tests. Error{BadInput}: anything else.
void spread_worlds(const std::string& how);

// Whether worlds are spread over the processes of a job.
bool over_mpi();

// While one exists, worlds are neither spread nor counted. Main thread.
class InThreads {
 public:
  InThreads();
  ~InThreads();
  InThreads(const InThreads&) = delete;
  InThreads& operator=(const InThreads&) = delete;
};

// While one exists, a CPU world has a fake process per number, its claimed host. Main thread.
class ClaimedHosts {
 public:
  explicit ClaimedHosts(std::vector<int> of_processes);
  ~ClaimedHosts();
  ClaimedHosts(const ClaimedHosts&) = delete;
  ClaimedHosts& operator=(const ClaimedHosts&) = delete;

 private:
  bool in_job_;
  int ranks_in_each_;
};

// The directory of a world to be spread; null: it is not spread.
std::unique_ptr<RankDirectory> spread_directory(const WorldOptions& options);

// "spread 40 worlds of 2 ranks and 12 of 4, not 7"; empty: spread_worlds() was not called.
// Error{BadInput}: none was spread, so nothing was tested.
std::string worlds_that_were_spread();

}  // namespace coshard::testing
