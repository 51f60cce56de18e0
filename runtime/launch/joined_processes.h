#pragma once
// Which processes of a job have called run() on this host, for diagnostics while MPI_Init silently
// waits for the others. Each process binds an abstract socket name (unix(7)), which is released
// when it ends. Any thread.
#include <string>
#include <vector>

namespace coshard {

// The launcher process, at or above `pid`, that started this host's processes; 0: none known.
int launcher_above(int pid);

class JoinedProcesses {
 public:
  // Registers `process` of the job that `launcher` started here, until destroyed.
  JoinedProcesses(int launcher, int process);
  ~JoinedProcesses();
  JoinedProcesses(const JoinedProcesses&) = delete;
  JoinedProcesses& operator=(const JoinedProcesses&) = delete;
  // Those of `processes` that are registered.
  std::vector<int> here(int processes) const;

 private:
  int launcher_, socket_;
};

// "process 1 has not called run()", for a job of `processes`, of which `local` are on this host (0:
// unknown) and those in `here` have called it.
std::string absence_text(int processes, int local, const std::vector<int>& here);

}  // namespace coshard
