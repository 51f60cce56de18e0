#pragma once
// Runs a task to its end inside of a running one: for code that must have a result before it
// returns, and cannot await. Rank's thread.
#include "runtime/coro/executor.h"

namespace coshard {

// The next Executor::run on this thread may begin inside of another's.
class AllowNestedRun {
 public:
  AllowNestedRun();
  ~AllowNestedRun();
  AllowNestedRun(const AllowNestedRun&) = delete;
  AllowNestedRun& operator=(const AllowNestedRun&) = delete;
};

// On an executor of its own; tasks of the one that is running wait meanwhile. Throws what the task
// throws, and Error{BadInput} when the task waits for something that only they would complete.
template <class T>
T run_nested(Task<T> task) {
  Executor inner;
  const AllowNestedRun allowed;
  return inner.run(std::move(task));
}

}  // namespace coshard
