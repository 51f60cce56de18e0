#pragma once
// Kills a process group once this process has ended, however it did: the kernel kills a program
// with its parent, but not what the program has started. A helper process waits for that, in its
// own process group, so that killing this process's group does not kill it.
#include <sys/types.h>

#include <array>

namespace coshard::job {

class OrphanReaper {
 public:
  OrphanReaper();  // from a single-threaded process
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;
  void set(pid_t group);  // 0: none

 private:
  std::array<int, 2> pipe_{-1, -1};
  pid_t helper_ = -1;
};

}  // namespace coshard::job
