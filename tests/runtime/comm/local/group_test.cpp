// Memory of a collective in flight: what we own is let go when it is over, and nobody touches what
// a failing rank owns once the rank is past it.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/local/thread_group.h"
#include "tests/runtime/coro/allocations.h"
#include "tests/support/child.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Memory = std::vector<float>;
using testing::Boom;
using testing::Child;
using testing::End;
using testing::end_of;
using testing::in_child;
using testing::quick_options;

Collective sum_in_place(Memory& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  return c;
}

// --- a throwing rank ---

// Stands for the owner of memory that is freed while a frame unwinds; the unwinding takes a while.
struct Owner {
  Memory& memory;
  std::atomic<bool>& freed;
  ~Owner() {
    std::fill(memory.begin(), memory.end(), -1.0F);
    freed = true;
    std::this_thread::sleep_for(100ms);
  }
};
Task<void> throw_with_a_collective_in_flight(World& world, Memory& memory,
                                             std::atomic<bool>& freed) {
  const Owner owner{memory, freed};
  auto work = world.communicator()->issue(sum_in_place(memory));
  co_await yield();
  throw Boom();
}
Task<void> join_when_it_is_freed(World& world, std::atomic<bool>& freed) {
  while (!freed) std::this_thread::yield();
  Memory data(1000, 1.0F);
  auto work = world.communicator()->issue(sum_in_place(data));
  work.wait();
  ADD_FAILURE() << "rank 0 got the sum with freed memory: " << data[0];
  co_return;
}

TEST(Ownership, NobodyTouchesTheMemoryOfARankThatThrewOnceItIsFreed) {
  Memory memory(1000, 1.0F);
  std::atomic<bool> freed{false};
  EXPECT_THROW(run_ranks(quick_options(2),
                         [&](World& world) {
                           return world.rank() == 1
                                      ? throw_with_a_collective_in_flight(world, memory, freed)
                                      : join_when_it_is_freed(world, freed);
                         }),
               Boom);
  EXPECT_EQ(memory, Memory(1000, -1.0F));
}

// The same with memory that really is freed: for AddressSanitizer.
Task<void> throw_with_a_vector_in_flight(World& world, std::atomic<bool>& freed) {
  Memory none;
  const Owner slow{none, freed};
  Memory data(100'000, 1.0F);
  auto work = world.communicator()->issue(sum_in_place(data));
  co_await yield();
  throw Boom();
}
Task<void> join_with_a_vector(World& world, std::atomic<bool>& freed) {
  while (!freed) std::this_thread::yield();
  Memory data(100'000, 1.0F);
  auto work = world.communicator()->issue(sum_in_place(data));
  work.wait();
  ADD_FAILURE() << "rank 0 got the sum with freed memory: " << data[0];
  co_return;
}

// 0: the error came out.
int throw_beside_a_peer() {
  std::atomic<bool> freed{false};
  try {
    run_ranks(quick_options(2), [&](World& world) {
      return world.rank() == 1 ? throw_with_a_vector_in_flight(world, freed)
                               : join_with_a_vector(world, freed);
    });
  } catch (const Boom&) {
    return ::testing::Test::HasFailure() ? 4 : 0;
  }
  return 3;
}

TEST(Ownership, NobodyReadsTheFreedVectorOfARankThatThrew) {
  const Child child = in_child(throw_beside_a_peer, 5);
  EXPECT_EQ(child.code, 0) << child;
}

// --- memory without bytes ---

// Rank 1 issues when rank 0 has dropped its handle.
Task<void> drops_a_gather_of_nothing(World& world, std::atomic<bool>& dropped) {
  while (world.rank() == 1 && !dropped) co_await sleep_for(1ms);
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = 0;
  c.keep_send = c.keep_recv = world.device()->make_buffer(0);
  c.send = c.recv = c.keep_send->data();
  EXPECT_NE(c.send, nullptr);
  { const Work dropped_at_once = world.communicator()->issue(std::move(c)); }
  dropped = true;
}

TEST(Ownership, NobodyWaitsForACollectiveOfMemoryWithoutBytesThatIsDropped) {
  std::atomic<bool> dropped{false};
  EXPECT_NO_THROW(run_ranks(
      quick_options(2), [&](World& world) { return drops_a_gather_of_nothing(world, dropped); }));
}

// --- dropped collectives ---

constexpr std::size_t kMiB = std::size_t{1} << 20;

void drop_sum(World& world, std::size_t bytes) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(bytes / sizeof(float));
  c.keep_send = c.keep_recv = world.device()->make_buffer(bytes);
  c.send = c.recv = c.keep_send->data();
  std::fill_n(static_cast<float*>(c.recv), c.extent, 1.0F);
  auto dropped = world.communicator()->issue(c);
}
std::size_t mebibytes_in_use(World& world) { return world.device()->memory().in_use / kMiB; }
void meet_all(World& world) {
  auto work = world.communicator()->issue(Collective());
  work.wait();
}
constexpr std::size_t kInFlight = 34;  // MiB: what may be in flight, and the last two

// The ranks stay in step, but neither waits for a collective.
Task<void> drop_many_in_step(World& world, std::barrier<>& step, std::size_t& most) {
  for (int i = 0; i < 150; ++i) {
    drop_sum(world, kMiB);
    most = std::max(most, mebibytes_in_use(world));
    step.arrive_and_wait();
  }
  co_return;
}

TEST(Ownership, IssueHelpsWhatAllHaveIssuedWhenItPassesThirtyTwoMebibytes) {
  std::barrier step(2);
  std::vector<std::size_t> most(2);
  run_ranks(quick_options(2), [&](World& world) {
    return drop_many_in_step(world, step, most[static_cast<std::size_t>(world.rank())]);
  });
  for (const std::size_t one : most) EXPECT_LE(one, kInFlight);
}

Task<void> drop_many_then_meet(World& world, std::barrier<>& step, std::size_t& left) {
  for (int i = 0; i < 150; ++i) drop_sum(world, kMiB);
  for (int i = 0; i < 2; ++i) {
    step.arrive_and_wait();
    meet_all(world);  // from the first on both have issued everything
  }
  left = mebibytes_in_use(world);
  co_return;
}

TEST(Ownership, DroppedCollectivesDoNotPileUpBehindABarrier) {
  std::barrier step(2);
  std::vector<std::size_t> left(2);
  run_ranks(quick_options(2), [&](World& world) {
    return drop_many_then_meet(world, step, left[static_cast<std::size_t>(world.rank())]);
  });
  for (const std::size_t one : left) EXPECT_LE(one, kInFlight);
}

// --- many ranks on one thread ---

using Communicators = std::vector<std::shared_ptr<Communicator>>;
using Works = std::vector<decltype(std::declval<Communicator&>().issue(Collective()))>;

Communicators communicators_of(ThreadGroup& thread_group, int ranks) {
  Communicators all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(thread_group.communicator(rank));
  return all;
}

// 0: each wait has ended, at once, and no sum is wrong.
int an_allocation_fails_in_a_transfer() {
  constexpr int kRanks = 20;  // more than a unit has pointers on its stack for
  ThreadGroup thread_group(kRanks);
  const Communicators all = communicators_of(thread_group, kRanks);
  std::vector<Memory> data(kRanks, Memory(100'000, 1.0F));
  Works works;
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r]->set_timeout(300'000'000);
    works.push_back(all[r]->issue(sum_in_place(data[r])));
  }
  fail_allocation_after(0);
  for (std::size_t r = 0; r < all.size(); ++r) {
    try {
      works[r].wait();
      if (data[r].front() != kRanks || data[r].back() != kRanks) return 4;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Timeout) return 5;
    } catch (const std::bad_alloc&) {
    }
    fail_allocation_after(-1);
  }
  return 0;
}

TEST(Ownership, AFailedAllocationInATransferEndsTheCollectiveOnAllRanks) {
  if (!kCountsAllocations) GTEST_SKIP() << "the sanitizer has an operator new of its own";
  const Child child = in_child(an_allocation_fails_in_a_transfer, 3);
  EXPECT_EQ(child.code, 0) << child;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// The least processor time of a barrier of `ranks`, all of them on this thread.
double seconds_of_a_barrier(int ranks) {
  ThreadGroup thread_group(ranks);
  const Communicators all = communicators_of(thread_group, ranks);
  double least = 1e9;
  for (int round = 0; round < 20; ++round) {
    Works works;
    works.reserve(all.size());
    const double begin = processor_seconds();
    for (const auto& communicator : all) works.push_back(communicator->issue(Collective()));
    least = std::min(least, processor_seconds() - begin);
    for (auto& work : works) work.wait();
  }
  return least;
}

TEST(Ownership, ABarrierCostsItsRanksAndNotTheirPairs) {
  const double few = seconds_of_a_barrier(128), many = seconds_of_a_barrier(2048);
  // 16 times the ranks, and caches that no longer hold them; their pairs are 256 times as many.
  EXPECT_LT(many / few, 100) << few << " s and " << many << " s";
}

// --- events ---

class Ids final : public Observer {
 public:
  explicit Ids(std::vector<std::uint64_t>& ids) : ids_(ids) {}
  void issued(const CommEvent& event, std::int64_t) override { ids_.push_back(event.id); }

 private:
  std::vector<std::uint64_t>& ids_;
};
Task<void> note_ids(World& world, std::vector<std::uint64_t>& ids) {
  Ids observer(ids);
  if (world.rank() == 0) world.add_observer(&observer);
  const std::vector<int> both{1, 0};
  const auto group = world.group(both, "group");
  for (int i = 0; i < 3; ++i) {
    meet_all(world);
    auto work = group->issue(Collective());
    work.wait();
  }
  world.remove_observer(&observer);
  co_return;
}

TEST(Ownership, TheIdOfAnEventIsItsAloneAlsoInTheNextWorld) {
  std::vector<std::uint64_t> ids;
  for (int world = 0; world < 2; ++world)
    run_ranks(quick_options(2), [&](World& w) { return note_ids(w, ids); });
  ASSERT_EQ(ids.size(), 12U);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

}  // namespace
}  // namespace coshard::testing
