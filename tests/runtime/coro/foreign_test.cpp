// Awaitables of somebody else's: resumed by another thread, through a post to the executor.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <coroutine>
#include <thread>

#include "runtime/coro/executor.h"

namespace coshard::test {
namespace {
using namespace std::chrono_literals;

// Another thread posts the resumption after a while: nothing of the executor's knows of the wait.
class Elsewhere {
 public:
  Elsewhere(std::thread& thread, bool through_queue)
      : thread_(thread), through_queue_(through_queue) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) {
    Executor* executor = Executor::current();
    thread_ = std::thread([executor, self, queued = through_queue_] {
      std::this_thread::sleep_for(20ms);
      boost::asio::post(executor->io_context(), [executor, self, queued] {
        if (queued) {
          executor->enqueue(self);
        } else {
          self.resume();
        }
      });
    });
  }
  int await_resume() const noexcept { return 7; }

 private:
  std::thread& thread_;
  bool through_queue_;
};

Task<int> awaits_elsewhere(std::thread& thread, bool through_queue) {
  Elsewhere elsewhere(thread, through_queue);
  const int value = co_await elsewhere;
  co_return value;
}
// The value, or -1 when the executor gave the task up.
int value_of_run(bool through_queue) {
  Executor executor;  // outlives the thread, which posts to it
  std::thread thread;
  int value = -1;
  try {
    value = executor.run(awaits_elsewhere(thread, through_queue));
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  if (thread.joinable()) thread.join();
  return value;
}

TEST(Foreign, AnAwaitableThatAnotherThreadResumesHoldsTheExecutorOpen) {
  EXPECT_EQ(value_of_run(true), 7);
  EXPECT_EQ(value_of_run(false), 7);
}

}  // namespace
}  // namespace coshard::test
