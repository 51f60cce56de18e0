#pragma once
// A thread that cannot be started is an error that says what to do.
#include <system_error>
#include <thread>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {

// Error{Unsupported}: the system starts no more threads.
template <class Work>
std::thread start_thread(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(ErrorKind::Unsupported,
         str_cat("no thread could be started (", error.code().message(),
                 "): the limit of threads or of memory for their stacks is reached (ulimit -u, "
                 "ulimit -v, pids.max of the control group); raise it, run fewer ranks, or let "
                 "ranks share threads (rank_threads)"));
  }
}

}  // namespace coshard
