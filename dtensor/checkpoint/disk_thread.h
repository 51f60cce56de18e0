#pragma once
// A thread that reads and writes files while its rank goes on. Owned by the rank.
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace coshard {

class DiskThread {
 public:
  DiskThread() = default;
  ~DiskThread();  // ends the task at hand; those after it are not begun
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Runs the task after those before it; not if one of these has failed.
  // Error{Unsupported}: no thread can be started.
  void run(std::function<void()> task);
  // Returns when at most `left` of them are not done.
  void wait(std::size_t left = 0);
  bool is_idle() const;
  // What the first one that failed has thrown; null: none has.
  std::exception_ptr failure() const;

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // the first one is being run
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;  // started by the first task
};

}  // namespace coshard
