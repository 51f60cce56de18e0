// Awaits whose end time decides: in_order gives them a place in the program's order, as_it_comes
// says that there is none.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/runtime/comm/issue.h"
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::End;
using testing::ends_of;
using testing::keep_end;
using testing::quick_options;

std::vector<End> ends_of_ranks(int ranks, const Program& program) {
  return ends_of(quick_options(ranks), program);
}
void expect_all_well(const std::vector<End>& ends) {
  for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
}

// --- in_order ---

// A loader whose batches take another time on each rank, before each step's sum.
milliseconds nap_of(const World& world, int branch, int step) {
  return milliseconds(((world.rank() + 1) * 7 + branch * 5 + step * 3) % 11);
}
using Load = Task<void> (*)(milliseconds nap);
Task<void> load_plainly(milliseconds nap) { return sleep_for(nap); }
Task<void> load_in_order(milliseconds nap) { co_await in_order(sleep_for(nap)); }

Task<void> train(World& world, Load load, int branch, float term, float& total) {
  for (int step = 0; step < 5; ++step) {
    Task<void> loaded = load(nap_of(world, branch, step));
    co_await std::move(loaded);
    float value = term;
    const Work sum = issue_sum(world, value);
    co_await sum;
    total += value;
  }
}
struct Totals {
  float one = 0, hundred = 0;
};
Task<void> train_two(World& world, Load load, Totals& totals) {
  Task<void> one = train(world, load, 0, 1, totals.one);
  Task<void> hundred = train(world, load, 1, 100, totals.hundred);
  Task<void> both = when_all(std::move(one), std::move(hundred));
  co_await std::move(both);
}
std::vector<End> train_on_three_ranks(Load load, std::vector<Totals>& totals) {
  totals.resize(3);
  return ends_of_ranks(3, [&](World& world) {
    return train_two(world, load, totals[static_cast<std::size_t>(world.rank())]);
  });
}

TEST(InOrderOnRanks, LoadersThatTakeAnotherTimeOnEachRankKeepTheOrderOfIssue) {
  std::vector<Totals> totals;
  expect_all_well(train_on_three_ranks(load_in_order, totals));
  for (const Totals& total : totals) {
    EXPECT_EQ(total.one, 5 * 3);
    EXPECT_EQ(total.hundred, 5 * 300);
  }
}
TEST(InOrderOnRanks, WithPlainSleepsTheSameProgramGetsTheTypedError) {
  std::vector<Totals> totals;
  for (const End& end : train_on_three_ranks(load_plainly, totals)) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("branch")) << end;
  }
}

Task<void> issues_at_once(World& world, float& value) {
  const Work sum = issue_sum(world, value);
  co_await sum;
}
Task<void> loader_that_communicates(World& world) {
  float value = 1;
  Task<void> loads = issues_at_once(world, value);
  co_await in_order(std::move(loads));
}

TEST(InOrderOnRanks, ACollectiveInsideTheWaitIsAnErrorThatSaysWhy) {
  for (const End& end : ends_of_ranks(2, loader_that_communicates)) {
    EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
    EXPECT_TRUE(end.names("all_reduce in branch in_order")) << end;
    EXPECT_TRUE(end.names("in_order")) << end;
    EXPECT_TRUE(end.names("as_it_comes_test.cpp:")) << end;
  }
}

// The batch comes from a peer: a message may be awaited inside, although its awaiter stands before
// it in the order.
Task<void> receives(World& world, float& value) {
  const Work recv = issue_message(world, CollectiveKind::Recv, 0, value);
  co_await recv;
}
Task<void> batch_from_rank_0(World& world) {
  float value = world.rank() == 0 ? 7 : 0;
  if (world.rank() == 0) {
    const Work send = issue_message(world, CollectiveKind::Send, 1, value);
    co_await in_order(sleep_for(20ms));
    co_await send;
  } else {
    Task<void> batch = receives(world, value);
    co_await in_order(std::move(batch));
  }
  float sum = value;
  const Work work = issue_sum(world, sum);
  co_await work;
  EXPECT_EQ(sum, 14);
}

TEST(InOrderOnRanks, AMessageMayBeAwaitedInside) {
  expect_all_well(ends_of_ranks(2, batch_from_rank_0));
}

// --- as_it_comes ---

constexpr int kItems = 40;

// Rank 0 makes, ranks between add one, the last one keeps: every rank does something else.
Task<void> stage(World& world, std::vector<float>& kept) {
  const int rank = world.rank(), last = world.size() - 1;
  for (int i = 0; i < kItems; ++i) {
    float value = static_cast<float>(i);
    if (rank > 0) {
      const Work recv = issue_message(world, CollectiveKind::Recv, rank - 1, value);
      co_await as_it_comes(recv);
    }
    if (rank == last) {
      kept.push_back(value);
      continue;
    }
    value += 1;
    if (i % 10 == rank) co_await sleep_for(1ms);
    const Work send = issue_message(world, CollectiveKind::Send, rank + 1, value);
    co_await as_it_comes(send);
  }
}
Task<void> ticks(World& world) {  // each rank another number of times
  for (int i = 0; i < 3 * (world.rank() + 1); ++i) co_await sleep_for(1ms);
}
Task<void> pipeline(World& world, std::vector<float>& kept) {
  Task<void> mine = stage(world, kept), beside = ticks(world);
  Task<void> both = when_all(std::move(mine), std::move(beside));
  co_await std::move(both);
  float value = 1;  // nothing runs beside: here the order is the program's again
  const Work sum = issue_sum(world, value);
  co_await sum;
  EXPECT_EQ(value, static_cast<float>(world.size()));
}

TEST(AsItComes, APipelineWhoseRanksDifferCarriesAllItems) {
  std::vector<float> kept;
  expect_all_well(ends_of_ranks(3, [&](World& world) { return pipeline(world, kept); }));
  ASSERT_EQ(kept.size(), static_cast<std::size_t>(kItems));
  for (int i = 0; i < kItems; ++i)
    EXPECT_EQ(kept[static_cast<std::size_t>(i)], static_cast<float>(i + 2));
}

Task<void> comes_first(World& world, int name, std::vector<int>& order) {
  float value = 0;
  const Work recv = issue_message(world, CollectiveKind::Recv, 1 + name, value);
  co_await as_it_comes(recv);
  order.push_back(name);
}
Task<void> sends_after(World& world, milliseconds nap) {
  co_await sleep_for(nap);
  float value = 1;
  const Work send = issue_message(world, CollectiveKind::Send, 0, value);
  co_await send;
}
Task<void> server(World& world, std::vector<int>& order) {
  if (world.rank() > 0) {
    Task<void> sends = sends_after(world, world.rank() == 1 ? 60ms : 1ms);
    co_await std::move(sends);
    co_return;
  }
  Task<void> slow = comes_first(world, 0, order), quick = comes_first(world, 1, order);
  Task<void> both = when_all(std::move(slow), std::move(quick));
  co_await std::move(both);
}

TEST(AsItComes, WhatIsOverFirstResumesFirst) {
  std::vector<int> order;
  expect_all_well(ends_of_ranks(3, [&](World& world) { return server(world, order); }));
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
}

Task<void> then_a_collective(World& world) {
  float value = 1;
  const Work first = issue_sum(world, value);
  co_await as_it_comes(first);
  const Work second = issue_sum(world, value);
  co_await second;
}

TEST(AsItComes, ACollectiveOfItsBranchAfterwardsIsAnErrorThatSaysWhy) {
  for (const End& end : ends_of_ranks(2, then_a_collective)) {
    EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
    EXPECT_TRUE(end.names("all_reduce in branch main, which was resumed in completion order"))
        << end;
  }
}

// A plain await in such a branch does not stand in the way of the branches that have an order.
Task<void> waits_for_a_late_message(World& world, End& end) {
  float first = 0, second = 0;
  const bool receives = world.rank() == 0;
  const auto kind = receives ? CollectiveKind::Recv : CollectiveKind::Send;
  const Work quick = issue_message(world, kind, 1 - world.rank(), first);
  co_await as_it_comes(quick);
  if (!receives) co_await sleep_for(50ms);
  const Work late = issue_message(world, kind, 1 - world.rank(), second);
  co_await late;
  end.text = "it came";
}
Task<void> sums_late(World& world, const End& late, bool& was_late) {
  for (int i = 0; i < 5; ++i) {
    float value = 1;
    const Work sum = issue_sum(world, value);
    co_await sum;
    EXPECT_EQ(value, 2);
  }
  was_late = late.text.empty();
}
Task<void> sums_beside_a_late_message(World& world) {
  End late;
  bool was_late = false;
  Task<void> messages = waits_for_a_late_message(world, late),
             adds = sums_late(world, late, was_late);
  Task<void> both = when_all(std::move(messages), std::move(adds));
  co_await std::move(both);
  EXPECT_TRUE(was_late);
}

TEST(AsItComes, APlainAwaitOfItsBranchDoesNotHoldUpBranchesInOrder) {
  expect_all_well(ends_of_ranks(2, sums_beside_a_late_message));
}

}  // namespace
}  // namespace coshard::testing
