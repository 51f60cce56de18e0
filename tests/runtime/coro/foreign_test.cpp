// Awaitables of somebody else's: resumed by another thread, through a post to the executor.
#include <gtest/gtest.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <coroutine>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::End;
using testing::keep_end;
using testing::note_end;

enum class How : bool { Resume, Enqueue };

// Threads that outlive the executors that they post to; joined at the end of the test.
class Others {
 public:
  Others() = default;
  ~Others() {
    for (std::thread& thread : threads_) thread.join();
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;

  // After `nap` one of them posts the resumption: nothing of the executor's knows of the wait.
  void resume_later(std::coroutine_handle<> self, milliseconds nap, How how) {
    Executor* executor = Executor::current();
    threads_.emplace_back([=, place = executor->asio_executor()] {
      std::this_thread::sleep_for(nap);
      boost::asio::post(place, [=] {
        if (how == How::Enqueue) {
          executor->enqueue(self);
        } else {
          self.resume();
        }
      });
    });
  }

 private:
  std::vector<std::thread> threads_;
};

struct Elsewhere {
  Others& others;
  How how = How::Resume;
  milliseconds nap = 20ms;
  int value = 7;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) const { others.resume_later(self, nap, how); }
  int await_resume() const noexcept { return value; }
};

Task<int> awaits_elsewhere(Others& others, How how) {
  Elsewhere elsewhere{others, how};
  const int value = co_await elsewhere;
  co_return value;
}

TEST(Foreign, AnAwaitableThatAnotherThreadResumesHoldsTheExecutorOpen) {
  for (const How how : {How::Resume, How::Enqueue}) {
    Executor executor;
    Others others;
    EXPECT_EQ(executor.run(awaits_elsewhere(others, how)), 7);
  }
}

TEST(Foreign, AnAwaitableThatAnotherThreadResumesHoldsATaskOnTheUsersContext) {
  for (const How how : {How::Resume, How::Enqueue}) {
    boost::asio::io_context context;
    boost::asio::thread_pool pool(2);
    Others others;
    std::future<int> on_context =
        co_spawn(context, awaits_elsewhere(others, how), boost::asio::use_future);
    context.run();
    EXPECT_EQ(on_context.get(), 7);
    std::future<int> on_pool =
        co_spawn(pool, awaits_elsewhere(others, how), boost::asio::use_future);
    EXPECT_EQ(on_pool.get(), 7);
  }
}

// --- branches ---

const BranchLocal<int> mark;

// As NoGradGuard and DefaultMesh do it.
class MarkGuard {
 public:
  explicit MarkGuard(int value) : before_(mark.get()) { mark.own() = value; }
  ~MarkGuard() { mark.own() = before_; }
  MarkGuard(const MarkGuard&) = delete;
  MarkGuard& operator=(const MarkGuard&) = delete;

 private:
  int before_;
};

Task<void> guarded(Others& others, How how, int number, int& ended) {
  const std::string path = Branch::current().path();
  const MarkGuard guard(number);
  for (int i = 0; i < 3; ++i) {
    Elsewhere elsewhere{others, how, milliseconds(1 + 7 * number % 5)};
    const int value = co_await elsewhere;
    EXPECT_EQ(value, 7);
    EXPECT_EQ(mark.get(), number);
    EXPECT_EQ(Branch::current().path(), path);
    co_await yield();
    EXPECT_EQ(mark.get(), number);
  }
  ++ended;
}
Task<void> guarded_siblings(Others& others, How how) {
  int ended = 0;
  std::vector<Task<void>> tasks;
  for (int i = 1; i <= 4; ++i) tasks.push_back(guarded(others, how, i, ended));
  Task<void> all = when_all(std::move(tasks));
  co_await std::move(all);
  EXPECT_EQ(ended, 4);
  EXPECT_EQ(mark.get(), 0);
}

TEST(Foreign, ResumesInItsBranchWithItsState) {
  for (const How how : {How::Resume, How::Enqueue}) {
    Executor executor;
    Others others;
    executor.run(guarded_siblings(others, how));
  }
}

TEST(Foreign, ResumesInItsBranchOnTheUsersContext) {
  for (const How how : {How::Resume, How::Enqueue}) {
    boost::asio::thread_pool pool(3);
    Others others;
    std::future<void> future =
        co_spawn(pool, guarded_siblings(others, how), boost::asio::use_future);
    EXPECT_NO_THROW(future.get());
  }
}

Task<void> in_its_place(Others& others) {
  const int value = co_await in_order(awaits_elsewhere(others, How::Resume));
  EXPECT_EQ(value, 7);
}
TEST(Foreign, IsAwaitedInOrder) {
  Executor executor;
  Others others;
  executor.run(in_its_place(others));
}

// --- cancelling ---

Task<void> then_goes_on(Others& others, bool& went_on) {
  Elsewhere elsewhere{others, How::Resume, 40ms};
  co_await elsewhere;
  went_on = true;
}
Task<void> fails_soon() {
  co_await sleep_for(2ms);
  throw std::runtime_error("boom");
}
Task<void> cancelled_siblings(Others& others) {
  bool went_on = false;
  End sibling, caught;
  const auto begin = std::chrono::steady_clock::now();
  Task<void> noted = note_end(then_goes_on(others, went_on), sibling), fails = fails_soon();
  Task<void> both = when_all(std::move(noted), std::move(fails));
  Task<void> kept = keep_end(std::move(both), caught);
  co_await std::move(kept);
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(sibling.is(ErrorKind::Cancelled)) << sibling;
  EXPECT_EQ(caught.text, "boom");
  // Nobody can cancel it: whoever resumes it still has its handle.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 38ms);
}

TEST(Foreign, OfACancelledBranchThrowsWhenItIsResumed) {
  Executor executor;
  Others others;
  executor.run(cancelled_siblings(others));
}

struct NeverAwaited {
  bool await_ready() const {
    ADD_FAILURE() << "awaited in a cancelled branch";
    return true;
  }
  void await_suspend(std::coroutine_handle<>) const {}
  void await_resume() const {}
};
Task<void> awaits_after_its_end() {
  try {
    co_await sleep_for(1h);
  } catch (const Error&) {  // cancelled
  }
  NeverAwaited never;
  co_await never;
}
Task<void> awaits_when_cancelled(End& sibling) {
  End caught;
  Task<void> noted = note_end(awaits_after_its_end(), sibling), fails = fails_soon();
  Task<void> both = when_all(std::move(noted), std::move(fails));
  Task<void> kept = keep_end(std::move(both), caught);
  co_await std::move(kept);
}
TEST(Foreign, IsNotEvenBegunInACancelledBranch) {
  End sibling;
  sync_wait(awaits_when_cancelled(sibling));
  EXPECT_TRUE(sibling.is(ErrorKind::Cancelled)) << sibling;
}

// --- kinds of awaitables ---

struct WithMember {
  Others& others;
  Elsewhere operator co_await() const { return {others, How::Resume, 1ms, 1}; }
};
struct WithFunction {
  Others& others;
};
Elsewhere operator co_await(const WithFunction& awaitable) {
  return {awaitable.others, How::Enqueue, 1ms, 2};
}
template <bool suspends>
struct Maybe {
  Others& others;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> self) const {
    if (suspends) others.resume_later(self, 1ms, How::Resume);
    return suspends;
  }
  int await_resume() const noexcept { return suspends ? 3 : 4; }
};
struct Transfers {  // to whom it was given, at once
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> self) const noexcept {
    return self;
  }
  int await_resume() const noexcept { return 5; }
};
struct TransfersAway {
  Others& others;
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> self) const {
    others.resume_later(self, 1ms, How::Resume);
    return std::noop_coroutine();
  }
  int await_resume() const noexcept { return 6; }
};
struct Throws {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<>) const { throw std::runtime_error("no"); }
  void await_resume() const noexcept {}
};

Task<int> sum_of_kinds(Others& others) {
  const WithMember member{others};
  const WithFunction function{others};
  Maybe<true> yes{others};
  Maybe<false> no{others};
  Transfers transfers;
  TransfersAway away{others};
  int sum = co_await member;
  sum += co_await function;
  sum += co_await yes;
  sum += co_await no;
  sum += co_await transfers;
  sum += co_await away;
  co_return sum;
}
Task<int> sum_of_kinds_in_a_branch(Others& others) {
  const MarkGuard guard(3);
  const int sum = co_await sum_of_kinds(others);
  EXPECT_EQ(mark.get(), 3);
  co_return sum;
}
Task<void> kinds_beside_each_other(Others& others) {
  Task<int> one = sum_of_kinds_in_a_branch(others), two = sum_of_kinds_in_a_branch(others);
  Task<std::tuple<int, int>> both = when_all(std::move(one), std::move(two));
  const std::tuple<int, int> sums = co_await std::move(both);
  EXPECT_EQ(std::get<0>(sums), 21);
  EXPECT_EQ(std::get<1>(sums), 21);
}
TEST(Foreign, EveryKindOfAwaitableIsAwaited) {
  Executor executor;
  Others others;
  executor.run(kinds_beside_each_other(others));
}

Task<void> meets_what_is_thrown() {
  Throws throws;
  co_await throws;
}
TEST(Foreign, AnAwaitThatThrowsInsteadOfSuspendingHoldsNobody) {
  EXPECT_THROW(sync_wait(meets_what_is_thrown()), std::runtime_error);
}

struct Boxed {
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  std::unique_ptr<int> await_resume() const { return std::make_unique<int>(8); }
};
struct Referred {
  int& value;
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  int& await_resume() const noexcept { return value; }
};
Task<int> takes_both() {
  int value = 1;
  Boxed boxed;
  Referred referred{value};
  const std::unique_ptr<int> box = co_await boxed;
  int& same = co_await referred;
  same = *box;
  co_return value;
}
TEST(Foreign, GivesMoveOnlyValuesAndReferences) { EXPECT_EQ(sync_wait(takes_both()), 8); }

}  // namespace
}  // namespace coshard::testing
