// Program order is the only order (docs/architecture.md, C2): delays change neither results nor the sequence of issues.
#include <atomic>
#include <mutex>
#include <random>
#include <set>

#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

using Random = std::minstd_rand;

void sleep_some(Random& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
}

TEST(Order, RandomDelaysChangeNeitherResultsNorTheHash) {
  std::set<std::uint64_t> hashes;
  std::mutex mutex;
  for (unsigned seed = 0; seed < 6; ++seed) {
    on_ranks(3, [&](Communicator& comm, int rank) {
      Random random(seed * 100 + static_cast<unsigned>(rank) + 1);
      for (int i = 0; i < 100; ++i) {
        Floats data(static_cast<std::size_t>(i % 7 == 0 ? 50'000 : 10),
                    static_cast<float>(rank + i));
        if (random() % 3 == 0) sleep_some(random);
        const Work work = comm.issue(sum_of(data));
        if (random() % 3 == 0) sleep_some(random);
        work.wait();
        ASSERT_EQ(data.get().back(), static_cast<float>(3 + 3 * i));
      }
      const std::scoped_lock lock(mutex);
      hashes.insert(comm.order_hash());
    });
  }
  EXPECT_EQ(hashes.size(), 1U);
}

// Issues, lets its siblings go on, and waits; three times.
Task<void> branch(World& world, Random& random, int which) {
  for (int i = 0; i < 3; ++i) {
    sleep_some(random);
    Floats data(static_cast<std::size_t>(10 + which), 1.0F);
    const Work work = world.communicator()->issue(sum_of(data));
    co_await yield();
    sleep_some(random);
    work.wait();
    EXPECT_EQ(data.get()[0], static_cast<float>(world.size()));
  }
}

Task<void> branches(World& world, unsigned seed, std::atomic<std::uint64_t>& hash) {
  Random random(seed * 100 + static_cast<unsigned>(world.rank()) + 1);
  for (int step = 0; step < 5; ++step) {
    Task<void> first = branch(world, random, 0);
    Task<void> second = branch(world, random, 1);
    Task<void> third = branch(world, random, 2);
    Task<void> all = when_all(std::move(first), std::move(second), std::move(third));
    co_await std::move(all);
  }
  hash = world.communicator()->order_hash();
}

TEST(Order, BranchesOfWhenAllIssueInTheSameOrderOnAllRanksUnderRandomDelays) {
  std::set<std::uint64_t> hashes;
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::vector<std::atomic<std::uint64_t>> of_rank(4);
    run_ranks(test_options(4), [&](World& world) {
      return branches(world, seed, of_rank[static_cast<std::size_t>(world.rank())]);
    });
    for (const auto& hash : of_rank) hashes.insert(hash.load());
  }
  EXPECT_EQ(hashes.size(), 1U);
}

TEST(Order, AnotherOrderHasAnotherHash) {
  std::set<std::uint64_t> hashes;
  for (bool swapped : {false, true}) {
    on_ranks(1, [&](Communicator& comm, int) {
      Floats small(1UL), large(2UL);
      comm.issue(sum_of(swapped ? large : small)).wait();
      comm.issue(sum_of(swapped ? small : large)).wait();
      hashes.insert(comm.order_hash());
    });
  }
  EXPECT_EQ(hashes.size(), 2U);
}

}  // namespace
}  // namespace coshard::testing
