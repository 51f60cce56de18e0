// Streams, subgroups and who is told: program order is the only order, and the host never waits
// for a device.
#include "runtime/device/stream_times.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

std::shared_ptr<Communicator> grouped(NcclRank& mine, bool by_split, const std::vector<int>& ranks,
                                      const char* name) {
  return by_split ? mine.comm->split(ranks, name) : mine.comm->subgroup(ranks, name);
}

TEST(NcclOrder, ACollectiveComesAfterTheComputeStreamAndBeforeWhatFollowsItsWait) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeDriver::get().reseed(seed);
    on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
      std::vector<NcclNumbers> all;
      std::vector<Work> works;
      for (int i = 0; i < 5; ++i) {
        all.emplace_back(mine, std::vector<float>(8, static_cast<float>(i + mine.rank)));
        works.push_back(mine.comm->issue(nccl_sum_of(all.back())));
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        works[i].wait();
        EXPECT_EQ(all[i].get(), std::vector<float>(8, static_cast<float>(2 * i + 1)));
      }
    });
  }
}

TEST(NcclOrder, AnIssueAndAWaitDoNotMakeTheHostWait) {
  on_nccl_ranks({.ranks = 1}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    FakeDriver::get().reset_counts();
    for (int i = 0; i < 100; ++i) mine.comm->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(FakeDriver::get().synchronisations(), 0U);
    EXPECT_EQ(FakeDriver::get().calls("ncclAllReduce"), 100U);
    EXPECT_EQ(numbers.get(), (std::vector<float>{1, 2}));
  });
}

TEST(NcclOrder, GroupsFollowTheOrderOfTheirRanksAndTakeTurnsOnOneDevice) {
  const std::size_t before = fake_nccl_communicators();
  for (bool by_split : {false, true}) {
    on_nccl_ranks({.ranks = 4}, [by_split](NcclRank& mine) {
      const auto rows = grouped(mine, by_split, {mine.rank / 2 * 2, mine.rank / 2 * 2 + 1}, "row");
      const auto columns = grouped(mine, by_split, {mine.rank % 2 + 2, mine.rank % 2}, "column");
      EXPECT_EQ(columns->rank(), mine.rank < 2 ? 1 : 0);
      EXPECT_EQ(columns->name(), "column");
      for (int round = 0; round < 5; ++round) {
        const NcclNumbers numbers(mine, std::vector<float>(3, static_cast<float>(mine.rank)));
        rows->issue(nccl_sum_of(numbers)).wait();
        columns->issue(nccl_sum_of(numbers)).wait();
        mine.comm->issue(nccl_sum_of(numbers)).wait();
        EXPECT_EQ(numbers.get(), std::vector<float>(3, 24.0F));
      }
      EXPECT_EQ(rows->issued(), 5U);
      EXPECT_EQ(mine.comm->issued(), 5U);
    });
  }
  EXPECT_EQ(fake_nccl_communicators(), before);
}

TEST(NcclOrder, AGroupOfSomeRanksNeedsNobodyElse) {
  on_nccl_ranks({.ranks = 3}, [](NcclRank& mine) {
    if (mine.rank == 1) return;
    const std::vector<int> ends{0, 2};
    const auto pair = mine.comm->subgroup(ends, "ends");
    const NcclNumbers numbers(mine, {1});
    pair->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(numbers.get()[0], 2.0F);
  });
}

TEST(NcclOrder, DroppedWorkServesThePeersAndTheirMemoryIsNotGivenAwayEarly) {
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    for (int i = 0; i < 30; ++i) {
      const NcclNumbers numbers(mine, std::vector<float>(5, 1.0F));
      const Work work = mine.comm->issue(nccl_sum_of(numbers));
      if (mine.rank == 0) continue;
      work.wait();
      EXPECT_EQ(numbers.get(), std::vector<float>(5, 2.0F));
    }
  });
}

struct NcclSeen final : Observer {
  std::vector<CommEvent> issues, completions;
  void issued(const CommEvent& event, std::int64_t) override { issues.push_back(event); }
  void ready(const CommEvent& event, std::int64_t begin, std::int64_t done,
             std::int64_t now) override {
    completions.push_back(event);
    EXPECT_LE(begin, done);
    EXPECT_LE(done, now);
  }
};

TEST(NcclOrder, AnObserverIsToldOnceOfEachIssueAndOfItsWait) {
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    NcclSeen seen;
    mine.comm->observe(std::make_shared<Observer*>(&seen));
    const NcclNumbers numbers(mine, {1, 2});
    const Work work = mine.comm->issue(nccl_sum_of(numbers));
    work.wait();
    work.wait();
    ASSERT_EQ(seen.issues.size(), 1U);
    ASSERT_EQ(seen.completions.size(), 1U);
    EXPECT_EQ(seen.issues[0].id, seen.completions[0].id);
    EXPECT_EQ(seen.issues[0].bytes, 8);
    EXPECT_EQ(seen.issues[0].communicator, "tp");
    mine.comm->observe(nullptr);
  });
}

TEST(NcclOrder, AnObserverIsToldWhenTheDeviceRanIt) {
  struct Times final : Observer {
    void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
      stalls += event.id == id ? 1 : 0;
      EXPECT_LE(begin, end);
    }
    void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
      runs += event.id == id ? 1 : 0;
      EXPECT_LE(begin, end);
      EXPECT_EQ(event.communicator, "tp");
    }
    void issued(const CommEvent& event, std::int64_t) override {
      id = event.id;
      EXPECT_TRUE(event.queued);
    }
    std::uint64_t id = 0;
    int stalls = 0, runs = 0;
  };
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    Times seen;
    const ObserverSlot slot = std::make_shared<Observer*>(&seen);
    mine.comm->observe(slot);
    mine.device->times().observe(slot);
    const NcclNumbers numbers(mine, {1, 2});
    const Work work = mine.comm->issue(nccl_sum_of(numbers));
    work.wait();
    work.wait();
    mine.device->synchronize();
    EXPECT_EQ(seen.stalls, 1);
    EXPECT_EQ(seen.runs, 1);
    mine.comm->observe(nullptr);
    mine.device->times().observe(nullptr);
  });
}

TEST(NcclOrder, TheHashOfTheOrderIsEqualOnAllRanks) {
  std::vector<std::uint64_t> hashes(3);
  on_nccl_ranks({.ranks = 3}, [&](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.comm->issue(Collective()).wait();
    hashes[static_cast<std::size_t>(mine.rank)] = mine.comm->order_hash();
  });
  EXPECT_NE(hashes[0], 0U);
  EXPECT_EQ(hashes, std::vector<std::uint64_t>(3, hashes[0]));
}

}  // namespace
}  // namespace coshard::testing
