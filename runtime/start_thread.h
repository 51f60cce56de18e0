#pragma once
// A thread that cannot be started is an error that says what to do.
#include <cstddef>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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

// Threads that are joined at the end, whatever is thrown meanwhile.
class JoinedThreads {
 public:
  explicit JoinedThreads(std::size_t most) { threads_.reserve(most); }
  ~JoinedThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;
  // At most `most` of them. Error{Unsupported}: as start_thread.
  template <class Work>
  void start(Work work) {
    threads_.push_back(start_thread(std::move(work)));
  }
  std::size_t size() const { return threads_.size(); }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace coshard
