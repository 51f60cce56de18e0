#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/device.h"

namespace coshard::testing {
namespace {

using namespace std::chrono_literals;
using coshard::testing::test_options;

WorldOptions stoppable(int ranks, std::stop_token stop) {
  WorldOptions options = test_options(ranks);
  options.timeout = 20s;
  options.stop = std::move(stop);
  return options;
}

// The number of the first call that gives true, by rank; 0: none of `calls` does.
struct SeenStop {
  explicit SeenStop(int ranks) : call(static_cast<std::size_t>(ranks), 0) {}
  std::vector<int> call;
  bool alike() const { return std::ranges::count(call, call[0]) == std::ssize(call); }
};

Task<void> ask_until_told(World& world, int calls, SeenStop& seen) {
  for (int call = 1; call <= calls; ++call) {
    if ((call * 7 + world.rank() * 3) % 5 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(50 * world.rank()));
    Task<bool> asked = world.stop_requested();
    const bool stop = co_await std::move(asked);
    if (!stop) continue;
    seen.call[static_cast<std::size_t>(world.rank())] = call;
    co_return;
  }
}

SeenStop run_until_told(int ranks, std::stop_token stop, int calls) {
  SeenStop seen(ranks);
  const WorldOptions options = stoppable(ranks, std::move(stop));
  run_ranks(options, [&](World& world) { return ask_until_told(world, calls, seen); });
  return seen;
}

TEST(StopRequest, MadeBeforeTheStartIsSeenByTheSecondCall) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::stop_source stop;
    stop.request_stop();
    const SeenStop seen = run_until_told(ranks, stop.get_token(), 10);
    EXPECT_TRUE(seen.alike());
    EXPECT_EQ(seen.call[0], 2) << ranks << " ranks";
  }
}

TEST(StopRequest, FromAnotherThreadIsSeenByTheSameCallOnAllRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const auto delay : {0us, 100us, 1000us, 5000us}) {
      std::stop_source stop;
      std::jthread asker([&] {
        std::this_thread::sleep_for(delay);
        stop.request_stop();
      });
      const SeenStop seen = run_until_told(ranks, stop.get_token(), 10'000'000);
      EXPECT_TRUE(seen.alike()) << ranks << " ranks, " << delay.count() << " us";
      EXPECT_GE(seen.call[0], 2);
    }
  }
}

// The last rank is told before its fourth call, when all others have made theirs.
Task<void> request_late(World& world, std::stop_source& stop, std::atomic<int>& others,
                        SeenStop& seen) {
  const bool last = world.rank() == world.size() - 1;
  for (int call = 1; call <= 8; ++call) {
    if (last && call == 4) {
      while (others < world.size() - 1) std::this_thread::sleep_for(1ms);
      stop.request_stop();
    }
    Task<bool> asked = world.stop_requested();
    const bool told = co_await std::move(asked);
    if (!last && call == 4) ++others;
    int& first = seen.call[static_cast<std::size_t>(world.rank())];
    if (told && first == 0) first = call;
    EXPECT_EQ(told, first != 0) << "call " << call << " takes it back";
  }
}

TEST(StopRequest, OfOneRankHoldsForAllAndForEver) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::stop_source stop;
    std::atomic<int> others{0};
    SeenStop seen(ranks);
    const WorldOptions options = stoppable(ranks, stop.get_token());
    run_ranks(options, [&](World& world) { return request_late(world, stop, others, seen); });
    EXPECT_TRUE(seen.alike());
    EXPECT_EQ(seen.call[0], 5) << ranks << " ranks";
  }
}

TEST(StopRequest, ThatNeverComesStopsNothing) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::stop_source stop;
    EXPECT_EQ(run_until_told(ranks, stop.get_token(), 300).call, SeenStop(ranks).call);
    EXPECT_EQ(run_until_told(ranks, std::stop_token(), 300).call, SeenStop(ranks).call);
  }
}

Task<void> request_when_done(World& world, std::stop_source& stop, std::atomic<int>& done,
                             SeenStop& seen) {
  Task<void> calls = ask_until_told(world, 5, seen);
  co_await std::move(calls);
  if (++done == world.size()) stop.request_stop();
}

TEST(StopRequest, ThatComesAfterTheLastCallStopsNothing) {
  std::stop_source stop;
  std::atomic<int> done{0};
  SeenStop seen(3);
  const WorldOptions options = stoppable(3, stop.get_token());
  run_ranks(options, [&](World& world) { return request_when_done(world, stop, done, seen); });
  EXPECT_EQ(seen.call, SeenStop(3).call);
}

// The source may go away while the ranks run; they agree all the same.
TEST(StopRequest, OfASourceThatIsGoneIsNeverSeen) {
  std::optional<std::stop_source> stop(std::in_place);
  SeenStop seen(2);
  const WorldOptions options = stoppable(2, stop->get_token());
  std::jthread ender([&] { stop.reset(); });
  run_ranks(options, [&](World& world) { return ask_until_told(world, 2000, seen); });
  EXPECT_EQ(seen.call, SeenStop(2).call);
}

// Rank 1 asks for the first time when rank 0 has its first answer.
Task<void> ask_one_after_the_other(World& world, std::atomic<bool>& answered) {
  while (world.rank() == 1 && !answered) std::this_thread::sleep_for(1ms);
  const std::uint64_t waits = world.device()->host_waits();
  Task<bool> asked = world.stop_requested();
  EXPECT_FALSE(co_await std::move(asked));
  if (world.rank() == 0) answered = true;
  for (int call = 0; call < 10; ++call) {
    Task<bool> again = world.stop_requested();
    EXPECT_FALSE(co_await std::move(again));
  }
  EXPECT_EQ(world.device()->host_waits(), waits);
}

TEST(StopRequest, WaitsForNoRankThatIsLessThanACallBehindAndForNoDevice) {
  const std::stop_source stop;
  std::atomic<bool> answered{false};
  const WorldOptions options = stoppable(2, stop.get_token());
  run_ranks(options, [&](World& world) { return ask_one_after_the_other(world, answered); });
}

struct Ears final : Observer {
  int heard = 0;
  void issued(const CommEvent&, std::int64_t) override { ++heard; }
  void awaiting(const CommEvent&) override { ++heard; }
  void ready(const CommEvent&, std::int64_t, std::int64_t, std::int64_t) override { ++heard; }
};

Task<void> ask_observed(World& world) {
  Ears ears;
  world.add_observer(&ears);
  const std::uint64_t before = world.communicator()->issued();
  for (int call = 0; call < 5; ++call) {
    Task<bool> asked = world.stop_requested();
    EXPECT_FALSE(co_await std::move(asked));
  }
  EXPECT_EQ(ears.heard, 0);
  EXPECT_EQ(world.communicator()->issued(), before);
  EXPECT_EQ(world.groups(), 0U);
  world.remove_observer(&ears);
}

TEST(StopRequest, IsNoCollectiveOfTheProgram) {
  const std::stop_source stop;
  run_ranks(stoppable(2, stop.get_token()), ask_observed);
}

Task<void> fail_on_the_last_rank(World& world) {
  for (int call = 0; call < 100; ++call) {
    if (world.rank() == 2 && call == 7) throw std::runtime_error("boom");
    Task<bool> asked = world.stop_requested();
    EXPECT_FALSE(co_await std::move(asked));
  }
}

TEST(StopRequest, FailsWithTheErrorOfTheRankThatFailed) {
  const std::stop_source stop;
  try {
    run_ranks(stoppable(3, stop.get_token()), fail_on_the_last_rank);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "boom");
  }
}

}  // namespace
}  // namespace coshard::testing
