// Ranks, contexts and executors that end while something of theirs is on its way. Each in a process
// of its own, which must end well.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <coshard/runtime/comm/async_wait.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/run_on_asio.h>
#include <coshard/runtime/sanitizers.h>
#include "tests/support/ends.h"
#include "tests/support/foreign_awaitables.h"
#include "tests/support/long_awaits.h"

#if !COSHARD_TSAN  // which lets no fork of a process with threads start any

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::issue_barrier;
using testing::Never;
using testing::quick_options;

// Ends the process with 0 when `body` comes to its end within `seconds`.
template <class Body>
[[noreturn]] void ends_well(unsigned seconds, const Body& body) {
  ::alarm(seconds);
  body();
  std::_Exit(0);
}
#define EXPECT_ENDS_WELL(...) \
  EXPECT_EXIT(ends_well(60, __VA_ARGS__), ::testing::ExitedWithCode(0), "")

WorldOptions on_fibers(int ranks) {
  WorldOptions options = quick_options(ranks);
  options.rank_threads = 1;
  return options;
}
void on_context(asio::io_context& io, const WorldOptions& options, const Program& program) {
  run_ranks(options, program, io.get_executor(), [](const std::exception_ptr&) {});
}
void swallow(const WorldOptions& options, const Program& program) {
  try {
    run_ranks(options, program);
  } catch (const std::exception&) {
  }
}

const RankLocal<std::vector<int>> values;
Task<void> naps_beside() {
  values->assign(1000, 1);
  co_await sleep_for(20ms);
  values->push_back(World::current() != nullptr ? 1 : 0);
}
Task<void> leaves_a_task_behind(World& world) {
  if (world.rank() == 0) {
    co_spawn(world.executor(), naps_beside(), asio::detached);
    co_return;
  }
  co_await sleep_for(50ms);
}

TEST(Lifetime, ATaskBesideAProgramIsDestroyedWithItsRankOnAThread) {
  EXPECT_ENDS_WELL([] { run_ranks(quick_options(2), leaves_a_task_behind); });
}
TEST(Lifetime, ATaskBesideAProgramIsDestroyedWithItsRankOnAFiber) {
  EXPECT_ENDS_WELL([] { run_ranks(on_fibers(2), leaves_a_task_behind); });
}
TEST(Lifetime, ATaskBesideAProgramIsDestroyedWithItsRankOnAContext) {
  EXPECT_ENDS_WELL([] {
    asio::io_context io;
    on_context(io, quick_options(2), leaves_a_task_behind);
    io.run();
  });
}

// What async_wait says of the end of the program.
Task<void> drops_a_wait(World& world) {
  Work work;
  if (world.rank() == 0) {
    work = issue_barrier(world);
    async_wait(world.executor(), work, [](const std::exception_ptr&) {});
    co_await sleep_for(20ms);
    co_return;
  }
  co_await sleep_for(60ms);
  work = issue_barrier(world);
  co_await work;
}
TEST(Lifetime, AnAsyncWaitIsDroppedWhenTheProgramOfItsRankEndsFirst) {
  EXPECT_ENDS_WELL([] { run_ranks(quick_options(2), drops_a_wait); });
  EXPECT_ENDS_WELL([] { run_ranks(on_fibers(2), drops_a_wait); });
  EXPECT_ENDS_WELL([] {
    asio::io_context io;
    on_context(io, quick_options(2), drops_a_wait);
    io.run();
  });
}

struct Meanwhile {
  std::vector<std::thread> threads;
  std::atomic<bool> given_up{false}, come_back{false}, came_back{false};
};
// Resumed by a thread, through a post to the executor of its rank, when it is to come back.
class ByThread {
 public:
  ByThread(Meanwhile& meanwhile, World& world)
      : meanwhile_(meanwhile), target_(world.executor().asio_executor()) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> awaiter) {
    meanwhile_.threads.emplace_back([awaiter, target = target_, &meanwhile = meanwhile_] {
      while (!meanwhile.come_back) std::this_thread::sleep_for(1ms);
      asio::post(target, [awaiter] { awaiter.resume(); });
      meanwhile.came_back = true;
    });
  }
  void await_resume() const {}

 private:
  Meanwhile& meanwhile_;
  asio::any_io_executor target_;
};
Task<void> awaits_a_thread(World& world, Meanwhile& meanwhile) {
  ByThread foreign(meanwhile, world);
  co_await foreign;
}
struct SetAtEnd {
  std::atomic<bool>& flag;
  ~SetAtEnd() { flag = true; }
};
Task<void> fails_meanwhile(World& world, Meanwhile& meanwhile) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  if (world.rank() == 0) {
    const SetAtEnd end{meanwhile.given_up};
    Task<void> waits = awaits_a_thread(world, meanwhile);
    co_await std::move(waits);
  }
  for (bool last = false; !last;) {  // a rank that does not end at once
    last = meanwhile.came_back;
    if (meanwhile.given_up) meanwhile.come_back = true;
    try {
      const Work work = issue_barrier(world);
      co_await work;
    } catch (const std::exception&) {
    }
    Parker& parker = RankContext::current().parker();
    parker.park(parker.now() + 20'000'000);
  }
}

// What a foreign awaitable resumes is destroyed with the rank that was given up.
TEST(Lifetime, AForeignAwaitableMayComeBackAfterItsRankWasGivenUpOnAContext) {
  EXPECT_ENDS_WELL([] {
    asio::io_context io;
    Meanwhile meanwhile;
    on_context(io, quick_options(2), [&](World& w) { return fails_meanwhile(w, meanwhile); });
    io.run();
    meanwhile.come_back = true;
    for (std::thread& thread : meanwhile.threads) thread.join();
    io.restart();
    io.run();
  });
}
TEST(Lifetime, AForeignAwaitableMayComeBackAfterItsRankWasGivenUpOnAFiber) {
  EXPECT_ENDS_WELL([] {
    Meanwhile meanwhile;
    swallow(on_fibers(3), [&](World& w) { return fails_meanwhile(w, meanwhile); });
    for (std::thread& thread : meanwhile.threads) thread.join();
  });
}

Task<void> waits_for_good(std::stop_token) {
  Never never;
  co_await never;
}
Task<void> one_fails_one_is_bounded(World& world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  const std::function<Task<void>(std::stop_token)> work = waits_for_good;
  Task<void> bounded = with_deadline(8s, "it", work);
  co_await std::move(bounded);
}
// A timer that is armed, of a deadline that has lost its point, holds the end up.
TEST(Lifetime, ADeadlineDoesNotKeepARankFromEndingWithItsPeers) {
  const auto begin = Clock::now();
  swallow(quick_options(2), one_fails_one_is_bounded);
  EXPECT_LT(Clock::now() - begin, 3s);
}

Task<void> does_nothing(World&) { co_return; }
// There is memory for the stacks of some of them.
TEST(Lifetime, RanksThatCannotBeMadeAreAnErrorAndNoHang) {
  if (COSHARD_ASAN || COSHARD_TSAN) GTEST_SKIP() << "a sanitizer needs all addresses";
  EXPECT_ENDS_WELL([] {
    WorldOptions options = quick_options(6000);
    options.rank_threads = 2;
    const rlimit most{std::size_t{2} << 30, std::size_t{2} << 30};
    ::setrlimit(RLIMIT_AS, &most);
    swallow(options, does_nothing);
  });
}

// There is memory for the stacks of some threads.
TEST(Lifetime, ThreadsThatCannotBeStartedAreAnErrorWithARemedy) {
  if (COSHARD_ASAN || COSHARD_TSAN) GTEST_SKIP() << "a sanitizer needs all addresses";
  const auto run = [] {
    const rlimit most{std::size_t{2} << 30, std::size_t{2} << 30};
    ::setrlimit(RLIMIT_AS, &most);
    try {
      run_ranks(quick_options(1000), does_nothing);
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool told = text.find("ulimit") != text.npos && text.find("rank_threads") != text.npos;
      ::_exit(told && error.kind() == ErrorKind::Unsupported ? 7 : 8);
    }
    ::_exit(9);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "");
}

Task<void> meets_for_ever(World& world) {
  for (;;) {
    const Work work = issue_barrier(world);
    co_await work;
  }
}
// The peer may be waking it at that moment, and be the last to hold it.
TEST(Lifetime, AContextIsDestroyedWhileRanksOfAnotherRing) {
  EXPECT_EXIT(ends_well(100,
                        [] {
                          for (int round = 0; round < 1500; ++round) {
                            auto here = std::make_unique<asio::io_context>();
                            asio::io_context there;
                            const std::vector<asio::any_io_executor> both{here->get_executor(),
                                                                          there.get_executor()};
                            run_ranks(quick_options(2), meets_for_ever, both,
                                      [](const std::exception_ptr&) {});
                            std::thread other([&] { there.run(); });
                            here->run_for(std::chrono::microseconds(300 + 37 * (round % 50)));
                            here.reset();
                            other.join();
                          }
                        }),
              ::testing::ExitedWithCode(0), "");
}

Task<void> meets_then_throws(World& world) {
  for (int i = 0; i < 200; ++i) {
    const Work work = issue_barrier(world);
    co_await work;
  }
  throw std::runtime_error("boom");
}
Task<void> throws_in_turn(World& world, int who) {
  Task<void> naps = sleep_for(1h);
  Task<void> meets = meets_for_ever(world);
  if (world.rank() == who) meets = meets_then_throws(world);
  Task<void> both = when_all(std::move(naps), std::move(meets));
  co_await std::move(both);
}
TEST(Lifetime, PeersOfARankThatThrowsEndWithinASecondWhereverTheyAre) {
  for (const int threads : {0, 1, 2}) {
    for (int who = 0; who < 3; ++who) {
      WorldOptions options = quick_options(3);
      options.rank_threads = threads;
      const auto begin = Clock::now();
      try {
        run_ranks(options, [who](World& world) { return throws_in_turn(world, who); });
        ADD_FAILURE();
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "boom");
      }
      EXPECT_LT(Clock::now() - begin, 2s);
    }
  }
}

}  // namespace
}  // namespace coshard::testing

#endif
