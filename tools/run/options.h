#pragma once
// The options of `coshard run`.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace coshard::job {

struct RunOptions {
  int ranks = 0;                     // 0: as many as the hosts have, or as this machine has cores
  std::optional<std::string> hosts;  // "h0,h1:2"; none: this machine
  std::string mpi;                   // "openmpi", "mpich"; empty: any installed one
  bool no_prefix = false;
  std::chrono::milliseconds start_timeout{60'000};  // for all processes to start; 0: no limit
  std::chrono::milliseconds grace{400};             // from SIGTERM to SIGKILL, after a failure
  std::vector<std::string> program;                 // and its arguments
};

}  // namespace coshard::job
