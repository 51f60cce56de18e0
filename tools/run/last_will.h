#pragma once
// Kills a process group once this process has ended, however it did: the kernel kills a program
// with its parent, but not what the program has started. A process of its own waits for that, in a
// group of its own, so that whoever kills this process by its group does not meet it.
#include <sys/types.h>

#include <array>

namespace coshard::job {

class LastWill {
 public:
  LastWill();  // from a process with one thread
  ~LastWill();
  LastWill(const LastWill&) = delete;
  LastWill& operator=(const LastWill&) = delete;
  void set(pid_t group);  // 0: none any more

 private:
  std::array<int, 2> pipe_{-1, -1};
  pid_t executor_ = -1;
};

}  // namespace coshard::job
