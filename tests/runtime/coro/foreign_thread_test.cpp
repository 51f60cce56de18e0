// Awaitables of somebody else's that are resumed on another thread, late, or never.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <coroutine>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/run_on_asio.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/ends.h"
#include "tests/support/foreign_awaitables.h"
#include "tests/support/long_awaits.h"

namespace coshard::foreign_thread {
namespace {
using namespace std::chrono_literals;
using testing::End;
using testing::end_of;
using testing::Held;
using testing::issue_barrier;
using testing::keep_end;
using testing::Never;
using testing::quick_options;
using testing::Stoppable;

// Threads of another library, joined at its end.
class Library {
 public:
  Library() = default;
  ~Library() {
    for (std::thread& thread : threads_) thread.join();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void start(std::function<void()> work) {
    const std::scoped_lock lock(mutex_);
    threads_.emplace_back(std::move(work));
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

// Resumed by a thread of the library's, on that thread, after `nap`.
struct Elsewhere {
  Library& library;
  std::chrono::milliseconds nap{2};
  int value = 0;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) {
    library.start([this, self] {
      std::this_thread::sleep_for(nap);
      value = 7;
      self.resume();
    });
  }
  int await_resume() const { return value; }
};

Task<void> often(Library& library, int times) {
  const std::thread::id own = std::this_thread::get_id();
  const RankContext* const rank = &RankContext::current();
  const std::string path = Branch::current().path();
  for (int i = 0; i < times; ++i) {
    Elsewhere elsewhere{library, std::chrono::milliseconds(i % 3)};
    const int value = co_await elsewhere;
    EXPECT_EQ(value, 7);
    EXPECT_EQ(&RankContext::current(), rank);
    EXPECT_EQ(Branch::current().path(), path);
    if (Executor::current()->context().parker().shares_its_thread()) continue;
    EXPECT_EQ(std::this_thread::get_id(), own);
  }
}
Task<void> often_beside_each_other(Library& library) {
  std::vector<Task<void>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(often(library, 10));
  Task<void> all = when_all(std::move(tasks));
  co_await std::move(all);
}
Task<void> on_rank(World& world, Library& library) {
  Task<void> all = often_beside_each_other(library);
  co_await std::move(all);
  const Work meeting = issue_barrier(world);
  co_await meeting;
}

TEST(ForeignThread, ResumesTheRankOnTheRanksThread) {
  Library library;
  sync_wait(often_beside_each_other(library));
  for (const int rank_threads : {0, 1}) {
    WorldOptions options = quick_options(3);
    options.timeout = 30s;
    options.rank_threads = rank_threads;
    run_ranks(options, [&](World& world) { return on_rank(world, library); });
  }
}

Task<void> often_anywhere(Library& library, std::atomic<int>& inside) {
  for (int i = 0; i < 20; ++i) {
    Elsewhere elsewhere{library, 1ms};
    const int value = co_await elsewhere;
    EXPECT_EQ(value, 7);
    EXPECT_EQ(++inside, 1);  // tasks of an executor never run at the same time
    --inside;
  }
}
TEST(ForeignThread, ResumesATaskOnTheCallersContext) {
  Library library;
  boost::asio::thread_pool pool(3);
  std::atomic<int> inside{0};
  auto done = boost::asio::use_future;
  std::future<void> all = co_spawn(pool, often_anywhere(library, inside), done);
  all.get();
}

// --- never ---

Task<void> awaits_never(World&) {
  Never never;
  co_await never;
}
WorldOptions short_wait(int rank_threads) {
  WorldOptions options = quick_options(2);
  options.rank_threads = rank_threads;
  return options;
}

TEST(ForeignThread, WhatNobodyResumesIsATimeoutThatNamesTheAwaitable) {
  for (const int rank_threads : {0, 1}) {
    End end;
    try {
      run_ranks(short_wait(rank_threads), awaits_never);
    } catch (...) {
      end = end_of(std::current_exception());
    }
    EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
    EXPECT_TRUE(end.names("Never")) << end;
    EXPECT_TRUE(end.names("WaitLimit")) << end;
  }
}

TEST(ForeignThread, WhatNobodyResumesIsATimeoutOnACallersContext) {
  boost::asio::io_context io;
  std::exception_ptr error;
  run_ranks(short_wait(0), awaits_never, io.get_executor(),
            [&](std::exception_ptr ended) { error = ended; });
  io.run();
  ASSERT_TRUE(error);
  EXPECT_TRUE(end_of(error).is(ErrorKind::Timeout)) << end_of(error);
}

Task<void> waits_on_a_timer(World& world, std::atomic<int>& over) {
  boost::asio::steady_timer timer(world.executor().asio_executor(), 1500ms);
  co_await timer.async_wait(use_task);
  ++over;
}
Task<void> waits_for_both(World& world, std::atomic<int>& over) {
  Task<void> timer = waits_on_a_timer(world, over), never = awaits_never(world);
  Task<void> both = when_all(std::move(never), std::move(timer));
  co_await std::move(both);
}
// A wait of the io_context's that is longer than the timeout is no hang; what remains is one.
TEST(ForeignThread, WorkOfTheContextMayTakeLonger) {
  for (const int rank_threads : {0, 1}) {
    WorldOptions options = short_wait(rank_threads);
    options.timeout = 300ms;
    std::atomic<int> over{0};
    End end;
    try {
      run_ranks(options, [&](World& world) { return waits_for_both(world, over); });
    } catch (...) {
      end = end_of(std::current_exception());
    }
    EXPECT_EQ(over, 2);
    EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  }
}

// --- deadlines and stop tokens ---

Task<void> never_in_time(End& end) {
  const auto work = [](std::stop_token) -> Task<void> {
    Never never;
    co_await never;
  };
  Task<void> bounded = with_deadline(50ms, "the socket", work);
  Task<void> kept = keep_end(std::move(bounded), end);
  co_await std::move(kept);
}
TEST(ForeignThread, ADeadlineEndsAnAwaitThatNobodyResumes) {
  End end;
  sync_wait(never_in_time(end));
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("the socket")) << end;
  std::vector<End> ends(2);
  WorldOptions options = quick_options(2);
  options.rank_threads = 1;
  run_ranks(options, [&](World& world) {
    return never_in_time(ends[static_cast<std::size_t>(world.rank())]);
  });
  for (const End& each : ends) EXPECT_TRUE(each.is(ErrorKind::Timeout)) << each;
}

// Resumed long after a deadline has given it up: that does nothing.
Task<void> too_late(End& end) {
  std::coroutine_handle<> given;
  const auto work = [&given](std::stop_token) -> Task<void> {
    Held late{given};
    co_await late;
  };
  Task<void> bounded = with_deadline(50ms, "late", work);
  Task<void> kept = keep_end(std::move(bounded), end);
  co_await std::move(kept);
  std::thread([given] { given.resume(); }).join();
}
TEST(ForeignThread, AResumeAfterItWasGivenUpDoesNothing) {
  End end;
  sync_wait(too_late(end));
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
}

Task<void> stops(End& end, std::chrono::nanoseconds& took) {
  const auto begin = std::chrono::steady_clock::now();
  std::optional<std::stop_callback<std::function<void()>>> callback;
  const auto work = [&callback](std::stop_token) -> Task<void> {
    Stoppable stoppable{callback};
    co_await stoppable;
  };
  Task<void> bounded = with_deadline(50ms, "stoppable", work);
  Task<void> kept = keep_end(std::move(bounded), end);
  co_await std::move(kept);
  took = std::chrono::steady_clock::now() - begin;
}
TEST(ForeignThread, AnAwaitableThatTakesAStopTokenGetsTheBranchs) {
  End end;
  std::chrono::nanoseconds took{};
  sync_wait(stops(end, took));
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_GE(took, 50ms);
}

// --- the end of a rank while others resume it ---

Task<void> fails_while_resumed(World& world, Library& library, std::list<Elsewhere>& all) {
  if (world.rank() == 1) {
    co_await sleep_for(std::chrono::milliseconds(3));
    throw std::runtime_error("boom");
  }
  for (int i = 0;; ++i) {
    Elsewhere& elsewhere = all.emplace_back(Elsewhere{library, std::chrono::milliseconds(i % 3)});
    const int value = co_await elsewhere;
    EXPECT_EQ(value, 7);
  }
}
TEST(ForeignThread, APeerMayFailMeanwhile) {
  for (int round = 0; round < 12; ++round) {
    std::list<Elsewhere> all;  // outlives the threads that write to it
    Library library;
    End end;
    try {
      run_ranks(quick_options(2),
                [&](World& world) { return fails_while_resumed(world, library, all); });
    } catch (...) {
      end = end_of(std::current_exception());
    }
    EXPECT_EQ(end.text, "boom");
  }
}

}  // namespace
}  // namespace coshard::foreign_thread
