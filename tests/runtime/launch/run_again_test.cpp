// Worlds after one that failed, in the same processes; over MPI as well (spread.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <coshard/runtime/comm/async_wait.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/errors.h"

namespace coshard::run_again {
namespace {

using namespace std::chrono_literals;
using testing::Boom;

constexpr std::int64_t kFew = 3, kMany = 3'000'000;  // a message of its own; blocks of 4 MiB

WorldOptions options_of(int ranks) { return {.ranks = ranks, .threads = 1, .timeout = 30s}; }

Work issue(World& world, std::int64_t count, Reduce reduce, float term) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.reduce = reduce;
  c.extent = count;
  c.keep_send = c.keep_recv =
      world.device()->make_buffer(static_cast<std::size_t>(count) * sizeof(float));
  c.send = c.recv = c.keep_send->data();
  std::fill_n(static_cast<float*>(c.recv), count, term);
  return world.communicator()->issue(c);
}

Task<void> sums(World& world, std::int64_t count) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = count;
  c.keep_send = c.keep_recv =
      world.device()->make_buffer(static_cast<std::size_t>(count) * sizeof(float));
  auto* data = static_cast<float*>(c.keep_send->data());
  c.send = c.recv = data;
  std::fill_n(data, count, static_cast<float>(world.rank() + 1));
  const Work work = world.communicator()->issue(c);
  co_await work;
  const int size = world.size();
  const auto right = static_cast<float>(size * (size + 1) / 2);
  EXPECT_EQ(std::count(data, data + count, right), count);
}

void expect_sums(int ranks) {
  for (const std::int64_t count : {kFew, kMany})
    EXPECT_NO_THROW(
        run_ranks(options_of(ranks), [count](World& world) { return sums(world, count); }));
}

// On every process, with its own error or with that of a peer.
void expect_failure(const WorldOptions& options, const Program& program) {
  EXPECT_ANY_THROW(run_ranks(options, program));
}

bool is_last(const World& world) { return world.rank() == world.size() - 1; }

Task<void> disagrees(World& world, std::int64_t count) {
  const Work work = issue(world, count, is_last(world) ? Reduce::Max : Reduce::Sum, 1);
  co_await work;
}
void expect_mismatch(int ranks, std::int64_t count) {
  expect_failure(options_of(ranks), [count](World& world) { return disagrees(world, count); });
}

TEST(RunAgain, AfterAMismatch) {
  for (const int ranks : {2, 4})
    for (const std::int64_t count : {kFew, kMany}) {
      expect_mismatch(ranks, count);
      expect_sums(ranks);
    }
}

TEST(RunAgain, TenTimes) {
  for (int i = 0; i < 10; ++i) {
    expect_mismatch(2, i % 2 == 0 ? kFew : kMany);
    EXPECT_NO_THROW(run_ranks(options_of(2), [](World& world) { return sums(world, kFew); }));
  }
}

TEST(RunAgain, AsOftenAsRunsFailInTurn) {
  for (int i = 0; i < 3; ++i) expect_mismatch(2, kMany);
  expect_sums(2);
}

// While the others' data are on their way.
Task<void> throws_on_the_last(World& world) {
  std::vector<Work> works;
  for (int i = 0; i < 8; ++i) works.push_back(issue(world, kMany, Reduce::Sum, 1));
  if (is_last(world)) throw Boom("disk full");
  for (const Work& work : works) co_await work;
}
TEST(RunAgain, AfterAnExceptionOfOneRank) {
  for (const int ranks : {2, 4}) {
    expect_failure(options_of(ranks), throws_on_the_last);
    expect_sums(ranks);
  }
}

Task<void> throws_at_once(World& world) {
  if (is_last(world)) throw Boom();
  const Work work = issue(world, kMany, Reduce::Sum, 1);
  co_await work;
}
TEST(RunAgain, AfterAnExceptionOfARankThatHasIssuedNothing) {
  expect_failure(options_of(2), throws_at_once);
  expect_sums(2);
}

Task<void> never_comes(World& world) {
  if (is_last(world)) {
    Task<void> sleep = sleep_for(1h);
    co_await std::move(sleep);
  }
  const Work work = issue(world, kMany, Reduce::Sum, 1);
  co_await work;
}
TEST(RunAgain, AfterATimeout) {
  WorldOptions options = options_of(2);
  options.timeout = 1s;
  expect_failure(options, never_comes);
  expect_sums(2);
}

Task<void> fails(World& world) {
  const Work work = issue(world, kFew, Reduce::Sum, 1);
  co_await work;
  if (is_last(world)) throw Boom();
}
Task<void> goes_on(World& world) {
  for (;;) {
    const Work work = issue(world, kMany, Reduce::Sum, 1);
    co_await work;
  }
}
Task<void> cancels(World& world) {
  Task<void> all = when_all(fails(world), goes_on(world));
  co_await std::move(all);
}
TEST(RunAgain, AfterABranchThatWasCancelled) {
  expect_failure(options_of(2), cancels);
  expect_sums(2);
}

TEST(RunAgain, WithRanksThatShareThreads) {
  WorldOptions sharing = options_of(4);
  sharing.rank_threads = 1;
  for (int i = 0; i < 3; ++i) {
    expect_failure(sharing, throws_on_the_last);
    EXPECT_NO_THROW(run_ranks(sharing, [](World& world) { return sums(world, kMany); }));
  }
}

TEST(RunAgain, WithAnotherNumberOfRanks) {
  expect_mismatch(4, kMany);
  expect_sums(2);
  expect_mismatch(2, kMany);
  expect_sums(4);
}

}  // namespace
}  // namespace coshard::run_again
