#pragma once
// Worlds whose ranks are in several processes on a fake MPI, inside one process: what programs do
// must not depend on it.
#include <vector>

namespace coshard::testing {

// From now on worlds on the cpu have `per_process` ranks in each fake process, where that divides
// them into 2 to 8; one at a time, the others stay in one process.
void spread_worlds(int per_process);

// While it lives, a world on the cpu has a fake process for each number, the host that it claims to
// be on.
class ClaimedHosts {
 public:
  explicit ClaimedHosts(std::vector<int> of_processes);
  ~ClaimedHosts();
  ClaimedHosts(const ClaimedHosts&) = delete;
  ClaimedHosts& operator=(const ClaimedHosts&) = delete;

 private:
  int before_;
};

}  // namespace coshard::testing
