#pragma once
// Which processes of a job have come to run() on this host, while MPI_Init waits for the others and
// tells nobody. Each binds a name of an abstract socket (unix(7)), which is free again once it has
// ended. Any thread.
#include <string>
#include <vector>

namespace coshard {

// The process that has started those of this host for a launcher; 0: none is known above `pid`.
int launcher_above(int pid);

class RollCall {
 public:
  // Answers as `process` of the job that `launcher` has started here, until destroyed.
  RollCall(int launcher, int process);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;
  // Those of `processes` that answer.
  std::vector<int> here(int processes) const;

 private:
  int launcher_, socket_;
};

// "process 1 has not called run()", of a job of `processes` of which `local` are on this host (0:
// unknown) and `here` have.
std::string absence_text(int processes, int local, const std::vector<int>& here);

}  // namespace coshard
