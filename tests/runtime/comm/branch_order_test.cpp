// The fingerprint of a collective carries the branch that issued it, and a branch that was
// cancelled issues nothing more.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/support/await_work.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::await_work;
using testing::Boom;
using testing::End;
using testing::ends_of;
using testing::keep_end;
using testing::quick_options;

Collective in_place_sum(float& value) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.send = c.recv = &value;
  return c;
}

constexpr int kFirstLine = __LINE__ + 2;
auto issue_first(World& world, float& value) {
  return world.communicator()->issue(in_place_sum(value));
}
constexpr int kSecondLine = __LINE__ + 2;
auto issue_second(World& world, float& value) {
  return world.communicator()->issue(in_place_sum(value));
}
std::string line(int number) { return str_cat("branch_order_test.cpp:", number); }

struct Values {
  float one = 1, hundred = 100;
};
Task<void> sleep_then_first(World& world, std::chrono::milliseconds nap, float& value) {
  co_await sleep_for(nap);
  Task<void> awaited = await_work(issue_first(world, value));
  co_await std::move(awaited);
}
Task<void> sleep_then_second(World& world, std::chrono::milliseconds nap, float& value) {
  co_await sleep_for(nap);
  Task<void> awaited = await_work(issue_second(world, value));
  co_await std::move(awaited);
}
Task<void> swapped_by_sleeps(World& world, Values& values) {
  const auto here = world.rank() == 0 ? 1ms : 60ms, there = world.rank() == 0 ? 60ms : 1ms;
  Task<void> first = sleep_then_first(world, here, values.one);
  Task<void> second = sleep_then_second(world, there, values.hundred);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(BranchFingerprint, EqualCollectivesOfSwappedBranchesAreAnErrorThatNamesBothLines) {
  std::vector<Values> values(2);
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) {
    return swapped_by_sleeps(world, values[static_cast<std::size_t>(world.rank())]);
  });
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("branch")) << end;
    EXPECT_TRUE(end.names(line(kFirstLine))) << end;
    EXPECT_TRUE(end.names(line(kSecondLine))) << end;
  }
  for (const Values& value : values) {
    EXPECT_NE(value.one, 101);
    EXPECT_NE(value.hundred, 101);
  }
}

// The collectives of one program that calls them once in branches and once without.
Task<void> first_then_second(World& world, Values& values) {
  Task<void> first = await_work(issue_first(world, values.one));
  co_await std::move(first);
  Task<void> second = await_work(issue_second(world, values.hundred));
  co_await std::move(second);
}
Task<void> in_branches_on_rank_0(World& world, Values& values) {
  if (world.rank() == 1) {
    Task<void> plain = first_then_second(world, values);
    co_await std::move(plain);
    co_return;
  }
  Task<void> first = sleep_then_first(world, 1ms, values.one);
  Task<void> second = sleep_then_second(world, 30ms, values.hundred);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(BranchFingerprint, ACollectiveOfABranchIsNotThatOfTheProgramItself) {
  std::vector<Values> values(2);
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) {
    return in_branches_on_rank_0(world, values[static_cast<std::size_t>(world.rank())]);
  });
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("branch")) << end;
  }
}

// --- cancelled branches ---

Task<void> throws_in_its_second_turn() {
  co_await yield();
  throw Boom();
}
Task<void> sleeps() { co_await sleep_for(300ms); }
Task<void> issue_now(World& world, float& value) {
  Task<void> awaited = await_work(issue_first(world, value));
  co_await std::move(awaited);
}
// Cancelled in its sleep, it tries to communicate before it ends.
Task<void> issues_after_its_sleep(World& world, float& value, End& slept, End& issued) {
  Task<void> sleeping = keep_end(sleeps(), slept);
  co_await std::move(sleeping);
  Task<void> issuing = keep_end(issue_now(world, value), issued);
  co_await std::move(issuing);
}
struct Cancelled {
  End slept, issued, caught;
  float after = 1;
};
Task<void> cancel_then_go_on(World& world, Cancelled& seen) {
  float value = 1;
  Task<void> failing = throws_in_its_second_turn();
  Task<void> cancelled = issues_after_its_sleep(world, value, seen.slept, seen.issued);
  Task<void> both = when_all(std::move(failing), std::move(cancelled));
  Task<void> kept = keep_end(std::move(both), seen.caught);
  co_await std::move(kept);
  Task<void> after = issue_now(world, seen.after);
  co_await std::move(after);
}

TEST(BranchFingerprint, ACancelledBranchIssuesNothingAndTheProgramGoesOn) {
  std::vector<Cancelled> seen(2);
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) {
    return cancel_then_go_on(world, seen[static_cast<std::size_t>(world.rank())]);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(ends[rank].failed) << ends[rank];
    EXPECT_TRUE(seen[rank].slept.is(ErrorKind::Cancelled)) << seen[rank].slept;
    EXPECT_TRUE(seen[rank].issued.is(ErrorKind::Cancelled)) << seen[rank].issued;
    EXPECT_EQ(seen[rank].caught.text, "boom");
    EXPECT_EQ(seen[rank].after, 2);
  }
}

}  // namespace
}  // namespace coshard::testing
