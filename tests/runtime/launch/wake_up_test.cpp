// Nobody is overlooked, woken for too late, or said to sleep for ever; and errors name who is
// missing.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/run_on_asio.h>
#include <coshard/runtime/sanitizers.h>
#include "tests/support/ends.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::compute_for;
using testing::End;
using testing::keep_end;
using testing::quick_options;
using testing::simulated_ends_of;

constexpr auto kPatience = 30s;  // what takes so long never comes

// Keeps the thread of the calling rank busy until `so`; whether that came.
template <class So>
bool computes_until(const So& so) {
  const auto end = Clock::now() + kPatience;
  while (!so() && Clock::now() < end) std::this_thread::sleep_for(1ms);
  return so();
}

// Memory of the library's own: nobody waits for it when a handle is dropped.
Collective owned(CollectiveKind kind, int peer = 0) {
  Collective c;
  c.kind = kind;
  c.root = peer;
  c.extent = 1;
  c.keep_send = c.keep_recv = World::current()->device()->make_buffer(sizeof(float));
  c.send = c.recv = c.keep_send->data();
  return c;
}
Work issue(World& world, CollectiveKind kind, int peer = 0) {
  return world.communicator()->issue(owned(kind, peer));
}
WorldOptions options_of(int ranks, int rank_threads) {
  WorldOptions options = quick_options(ranks);
  options.rank_threads = rank_threads;
  options.timeout = 2 * kPatience;
  return options;
}

Task<void> takes_what_comes(World& world, bool& done) {
  const Work message = issue(world, CollectiveKind::Recv, 1);
  co_await as_it_comes(message);
  done = true;
}
Task<void> yields_until(const bool& done, bool& starved) {
  const auto begin = Clock::now();
  while (!done && !starved) {
    co_await yield();
    starved = Clock::now() - begin > kPatience;
  }
}
Task<void> polls_for_a_message(World& world, bool& starved) {
  if (world.rank() == 1) {
    const Work message = issue(world, CollectiveKind::Send, 0);
    co_await message;
    co_return;
  }
  bool done = false;
  Task<void> takes = takes_what_comes(world, done), yields = yields_until(done, starved);
  Task<void> both = when_all(std::move(takes), std::move(yields));
  co_await std::move(both);
}
TEST(WakeUp, YieldsDoNotStarveAWaitThatResumesAsItComes) {
  for (const int threads : {0, 1}) {
    bool starved = false;
    run_ranks(options_of(2, threads),
              [&](World& world) { return polls_for_a_message(world, starved); });
    EXPECT_FALSE(starved) << threads;
  }
}

Task<void> awaits_nothing_until(World& world, bool& starved) {
  if (world.rank() == 1) {
    const Work message = issue(world, CollectiveKind::Send, 0);
    co_await message;
    co_return;
  }
  const Work message = issue(world, CollectiveKind::Recv, 1);
  const auto begin = Clock::now();
  while (!message.ready() && !starved) {
    const Work nothing;
    co_await nothing;
    starved = Clock::now() - begin > kPatience;
  }
}
TEST(WakeUp, AwaitsOfWhatIsOverDoNotStarveTheOtherRanksOfTheThread) {
  for (const int threads : {0, 1}) {
    bool starved = false;
    run_ranks(options_of(2, threads),
              [&](World& world) { return awaits_nothing_until(world, starved); });
    EXPECT_FALSE(starved) << threads;
  }
}

Task<void> notes(std::atomic<bool>& done) {
  done = true;
  co_return;
}
struct Posts {
  std::atomic<bool> posted{false}, spawned{false}, came_first{false};
  std::thread thread;
};
Task<void> is_posted_to(World& world, Posts& posts) {
  if (world.rank() == 1) {
    posts.came_first = computes_until([&] { return posts.posted && posts.spawned; });
  } else {
    posts.thread =
        std::thread([&, target = asio::prefer(world.executor().asio_executor(),
                                              asio::execution::outstanding_work.tracked)] {
          std::this_thread::sleep_for(50ms);  // rank 0 sleeps, or polls; both are to be woken
          asio::post(target, [&] { posts.posted = true; });
          co_spawn(target, notes(posts.spawned), asio::detached);
        });
  }
  const Work meet = issue(world, CollectiveKind::Barrier);
  co_await meet;
}
// While work of its Asio is outstanding, as any io_context asks of who posts from elsewhere.
TEST(WakeUp, WhatAThreadPostsToARankRunsAlthoughItWaitsForAPeer) {
  for (const int threads : {0, 2}) {
    Posts posts;
    run_ranks(options_of(2, threads), [&](World& world) { return is_posted_to(world, posts); });
    posts.thread.join();
    EXPECT_TRUE(posts.came_first) << threads << ' ' << posts.posted << ' ' << posts.spawned;
  }
}

Task<void> yields_until_stopped(std::stop_token) {
  for (;;) co_await yield();
}
Task<void> bounded_yields(std::atomic<bool>& timed_out) {
  const std::function<Task<void>(std::stop_token)> work = yields_until_stopped;
  Task<void> bounded = with_deadline(100ms, "yields", work);
  try {
    co_await std::move(bounded);
  } catch (const Error& error) {
    timed_out = error.kind() == ErrorKind::Timeout;
  }
}
struct MeetsAndYields {
  std::atomic<bool> timed_out[2] = {false, false}, came_first{false};
};
Task<void> meets_again(World& world, MeetsAndYields& both) {
  if (world.rank() == 1) both.came_first = computes_until([&] { return both.timed_out[0].load(); });
  const Work meet = issue(world, CollectiveKind::Barrier);
  co_await meet;
}
Task<void> meets_and_yields(World& world, MeetsAndYields& both) {
  Task<void> meeting = meets_again(world, both);
  Task<void> yields = bounded_yields(both.timed_out[world.rank()]);
  Task<void> all = when_all(std::move(meeting), std::move(yields));
  co_await std::move(all);
}
TEST(WakeUp, ADeadlineEndsAYieldThatWaitsForTheNextHead) {
  MeetsAndYields both;
  run_ranks(options_of(2, 0), [&](World& world) { return meets_and_yields(world, both); });
  EXPECT_TRUE(both.came_first);
}

Task<void> sends_later(World& world) {
  co_await sleep_for(50ms);
  const Work message = issue(world, CollectiveKind::Send, 0);
  co_await message;
}
Task<void> answers(World& world, bool& spawned_ended) {
  if (world.rank() == 1)
    co_spawn(world.executor(), sends_later(world),
             [&](const std::exception_ptr&) { spawned_ended = true; });
  const Work message = issue(world, CollectiveKind::Recv, 1 - world.rank());
  co_await message;
  if (world.rank() == 1) co_return;
  const Work answer = issue(world, CollectiveKind::Send, 1);
  co_await answer;
}
Task<void> answers_and_tells(World& world, std::vector<End>& ends, bool& spawned_ended) {
  const auto rank = static_cast<std::size_t>(world.rank());
  Task<void> task = keep_end(answers(world, spawned_ended), ends[rank]);
  co_await std::move(task);
  while (world.rank() == 1 && !spawned_ended) {  // it shares what ends with this rank
    try {
      co_await sleep_for(10ms);
    } catch (const std::exception&) {
      RankContext::current().parker().park(RankContext::current().parker().now() + 10'000'000);
      if (ends[rank].failed) ::_Exit(3);
    }
  }
}
TEST(WakeUp, ATaskBesideAProgramThatSleepsIsNoStandstill) {
  if (COSHARD_TSAN) GTEST_SKIP() << "no fork of a process with threads may start any";
  for (const int threads : {0, 1}) {
    EXPECT_EXIT(
        {
          std::vector<End> ends(2);
          bool spawned_ended = false;
          run_ranks(options_of(2, threads),
                    [&](World& world) { return answers_and_tells(world, ends, spawned_ended); });
          std::_Exit(ends[0].failed || ends[1].failed ? 2 : 0);
        },
        ::testing::ExitedWithCode(0), "")
        << threads;
  }
}

Task<void> needs_another_group(World& world, bool leaves) {
  const int in_a[] = {0, 2}, in_b[] = {0, 1};
  const auto a = world.group(in_a, "a"), b = world.group(in_b, "b");
  if (world.rank() == 2) {
    if (!leaves) compute_for(3s);
    co_return;
  }
  Collective c = owned(CollectiveKind::AllReduce);
  if (world.rank() == 0) c.after = a->issue(owned(CollectiveKind::AllReduce)).state();
  const Work second = b->issue(std::move(c));
  if (world.rank() == 1) compute_for(3s);
  co_await second;
}
// What it hangs on waits for rank 2.
TEST(WakeUp, ATimeoutOfAChainedCollectiveNamesWhoIsMissing) {
  const std::vector<End> ends = simulated_ends_of(
      quick_options(3), [](World& world) { return needs_another_group(world, false); });
  EXPECT_TRUE(ends[0].is(ErrorKind::Timeout)) << ends[0];
  EXPECT_FALSE(ends[0].names("missing: none")) << ends[0];
  EXPECT_TRUE(ends[0].names("2 (")) << ends[0];
}
TEST(WakeUp, ARankThatLeftIsSeenByWhatHangsOnItsCollective) {
  const std::vector<End> ends = simulated_ends_of(
      quick_options(3), [](World& world) { return needs_another_group(world, true); });
  EXPECT_TRUE(ends[0].names("rank 2 left")) << ends[0];
}

// Rings between ranks of two threads are not lost, with and without neighbours.
Task<void> ping_pong(World& world) {
  for (int i = 0; i < 3000; ++i) {
    const bool sends = (world.rank() + i) % 2 == 0;
    const int peer = world.rank() ^ 1;
    const Work message = issue(world, sends ? CollectiveKind::Send : CollectiveKind::Recv, peer);
    co_await message;
    if (i % 100 == 0) {
      const Work meet = issue(world, CollectiveKind::Barrier);
      co_await meet;
    }
  }
}
TEST(WakeUp, RingsBetweenThreadsAreNotLost) {
  for (const int threads : {0, 1, 2, 3}) run_ranks(options_of(6, threads), ping_pong);
}

}  // namespace
}  // namespace coshard::testing
