#pragma once
// Awaits that take hours, each under a deadline of 100 ms: alone, next to a sibling that waits
// first, and all at once.
#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"

namespace coshard::testing {

constexpr std::chrono::milliseconds kLimit{100};
constexpr std::chrono::milliseconds kPromised{150};  // must have ended by then
constexpr std::chrono::seconds kAtMost{1};           // the same on a busy machine

// An await of a program, the same on all ranks unless `differs`.
struct LongAwait {
  const char* name;
  Task<void> (*begin)(World& world);
  bool differs = false;  // ranks give up different awaits, and cannot continue together
};
inline std::ostream& operator<<(std::ostream& out, const LongAwait& await) {
  return out << await.name;
}
inline std::string name_of(const ::testing::TestParamInfo<LongAwait>& info) {
  return info.param.name;
}

// Ranks whose collectives take an hour: every await of one gives up first.
inline WorldOptions hour_long_collectives(int ranks) {
  WorldOptions options = quick_options(ranks);
  options.link = Link{3'600'000'000, 1'000};
  options.timeout = std::chrono::hours(24);
  return options;
}

// A collective of all ranks without user memory.
inline Work issue_barrier(World& world) { return world.communicator()->issue(Collective()); }
inline Task<void> meet(World& world) {
  const Work meeting = issue_barrier(world);
  co_await meeting;
}

struct Bounded {
  End end;
  std::chrono::nanoseconds took{};  // by the rank's clock
};
inline std::chrono::nanoseconds now_of(World& world) {
  return std::chrono::nanoseconds(world.executor().now());
}
inline Task<void> bound(World& world, LongAwait await, Bounded& bounded) {
  const auto begin = now_of(world);
  const auto work = [&world, await](std::stop_token) { return await.begin(world); };
  Task<void> task = with_deadline(kLimit, await.name, work);
  Task<void> kept = keep_end(std::move(task), bounded.end);
  co_await std::move(kept);
  bounded.took = now_of(world) - begin;
}
inline void expect_timeout_by(std::chrono::nanoseconds latest, const Bounded& bounded,
                              const LongAwait& await) {
  EXPECT_TRUE(bounded.end.is(ErrorKind::Timeout)) << await << ' ' << bounded.end;
  EXPECT_TRUE(bounded.end.names(str_cat(await.name, ": not finished after 100 ms"))) << bounded.end;
  EXPECT_GE(bounded.took, kLimit) << await;
  EXPECT_LE(bounded.took, latest) << await;
}

// Afterwards all ranks meet and sleep, as if nothing had happened.
inline Task<void> go_on(World& world) {
  const auto begin = now_of(world);
  Task<void> first = meet(world), second = meet(world), nap = sleep_for(kLimit);
  Task<void> all = when_all(std::move(first), std::move(nap), std::move(second));
  co_await std::move(all);
  EXPECT_GE(now_of(world) - begin, std::chrono::hours(1));
}
inline Task<void> bound_then_go_on(World& world, LongAwait await) {
  Bounded bounded;
  Task<void> task = bound(world, await, bounded);
  co_await std::move(task);
  expect_timeout_by(kPromised, bounded, await);
  if (await.differs) co_return;
  Task<void> more = go_on(world);
  co_await std::move(more);
}
// Its await is not the one that the executor waits on.
inline Task<void> bound_behind_a_sibling(World& world, LongAwait await) {
  Bounded bounded;
  Task<void> before = meet(world), task = bound(world, await, bounded);
  Task<void> both = when_all(std::move(before), std::move(task));
  co_await std::move(both);
  expect_timeout_by(kPromised, bounded, await);
  if (await.differs) co_return;
  Task<void> more = go_on(world);
  co_await std::move(more);
}

using BoundedProgram = Task<void> (*)(World&, LongAwait);
// In virtual time, where 150 ms are exact.
inline void simulate_bounded(int ranks, BoundedProgram program, const LongAwait& await) {
  const std::stop_source stop;  // for programs that query it
  WorldOptions options = hour_long_collectives(ranks);
  options.stop = stop.get_token();
  SimOptions sim;
  sim.turn = std::chrono::microseconds(100);  // a yield takes many turns
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_NO_THROW(simulate(
        options, [&](World& world) { return program(world, await); }, seed, sim))
        << await << ", seed " << seed;
}

// All at once, each in a branch.
inline Task<void> bound_all(World& world, std::span<const LongAwait> awaits) {
  std::vector<Bounded> bounded(awaits.size());
  std::vector<Task<void>> tasks;
  for (std::size_t i = 0; i < awaits.size(); ++i)
    tasks.push_back(bound(world, awaits[i], bounded[i]));
  Task<void> all = when_all(std::move(tasks));
  co_await std::move(all);
  for (std::size_t i = 0; i < awaits.size(); ++i) expect_timeout_by(kAtMost, bounded[i], awaits[i]);
}
inline void run_all_bounded(WorldOptions options, std::span<const LongAwait> awaits) {
  EXPECT_NO_THROW(run_ranks(options, [&](World& world) { return bound_all(world, awaits); }));
}

}  // namespace coshard::testing
