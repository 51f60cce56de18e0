#pragma once
// What the callbacks of a run report: the first failure, and the ranks that have not ended since.
// Values.
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <coshard/runtime/call_site.h>

#pragma GCC visibility push(default)
namespace coshard {

// The first failure of a run.
struct Failure {
  int rank = -1;           // whose program failed; -1: all ranks together
  std::string text;        // the message of what was thrown
  std::string module;      // path of the innermost module that it left; "": none
  CallSite where = {};     // the user's line if the text does not name it; line 0: unknown
  bool elsewhere = false;  // another process reports it

  // "rank 1, layers.0.mlp: matmul: inner dims differ: …"
  std::string line() const;
};
// For `error`, which has left the program of `rank` through `module`.
Failure failure_of(int rank, const std::exception_ptr& error, std::string module = "");

// Ranks that have not ended although the run has failed: they are in code that cannot be
// interrupted.
struct StillRunning {
  std::vector<int> ranks;  // ascending
  // "rank 1 (last issued #39 all_reduce on tp[4] 1.7 s ago), rank 3 (…)"
  std::string text;
  std::chrono::milliseconds since;  // since the failure was reported
  bool out_of_grace = false;        // for longer than WorldOptions::grace
};

}  // namespace coshard
#pragma GCC visibility pop
