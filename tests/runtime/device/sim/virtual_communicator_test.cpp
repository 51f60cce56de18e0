#include "runtime/device/sim/virtual_communicator.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

// Tells of each wait: how long the compute stream stood still, and when the data were there.
class Waits final : public Observer {
 public:
  void issued(const CommEvent& event, std::int64_t now) override {
    text += str_cat(event.communicator, ' ', to_string(event.kind), '@', now, ' ');
  }
  void ready(const CommEvent& event, std::int64_t begin, std::int64_t done,
             std::int64_t now) override {
    text += str_cat('#', event.sequence, " waited ", now - begin, " done ", done, ' ');
  }
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    text += str_cat('#', event.sequence, " stalled ", begin, " to ", end, ' ');
  }
  std::string text;
};

struct Rank {
  explicit Rank(std::vector<int> all = {0, 1, 2, 3}) {
    network->device = std::make_shared<VirtualDevice>(ProcessorModel());
    world = std::make_shared<VirtualCommunicator>(network, std::move(all), 0, "world");
    world->observe(std::make_shared<Observer*>(&waits));
  }
  std::int64_t& now() { return network->device->compute_stream().now; }
  Collective gather(std::int64_t elements) {
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.extent = elements;
    c.keep_send = c.keep_recv =
        network->device->make_buffer(static_cast<std::size_t>(elements) * 4);
    c.send = c.recv = c.keep_recv->data();
    return c;
  }

  // 1 byte per ns and 10 ns of latency; "slow": half of it. Communicators "a" and "b" share one.
  std::shared_ptr<VirtualNetwork> network = std::make_shared<VirtualNetwork>(
      VirtualNetwork{[](const std::string& name, const std::vector<int>&) {
        if (name == "slow") return LinkModel{"nic", {{10, 0, 0.5e9}}};
        return LinkModel{"nvlink", {{10, 0, 1e9}}};
      }});
  std::shared_ptr<VirtualCommunicator> world;
  Waits waits;
};

TEST(VirtualCommunicator, AWaitMovesTheComputeStreamToTheEndOfTheTransfer) {
  Rank rank;
  rank.now() = 1000;
  const Work work = rank.world->issue(rank.gather(400));
  EXPECT_TRUE(work.ready());
  EXPECT_EQ(rank.now(), 1000);
  rank.now() += 500;  // compute
  work.wait();
  EXPECT_EQ(rank.now(), 2210);
  work.wait();
  EXPECT_EQ(rank.waits.text, "world all_gather@1000 #0 waited 710 done 2210 ");
}

TEST(VirtualCommunicator, AnHiddenCollectiveCostsNothing) {
  Rank rank;
  const Work work = rank.world->issue(rank.gather(400));
  rank.now() = 5000;
  work.wait();
  EXPECT_EQ(rank.now(), 5000);
  EXPECT_EQ(rank.waits.text, "world all_gather@0 #0 waited 0 done 1210 ");
}

TEST(VirtualCommunicator, ShardsArriveOwnFirstAndInTheOrderOfRanks) {
  Rank rank;
  const Work work = rank.world->issue(rank.gather(400));
  work.state()->wait(0);
  EXPECT_EQ(rank.now(), 0);
  work.state()->wait(1);
  EXPECT_EQ(rank.now(), 410);
  work.state()->wait(2);
  EXPECT_EQ(rank.now(), 810);
  work.wait();
  EXPECT_EQ(
      rank.waits.text,
      "world all_gather@0 #0 stalled 0 to 410 #0 stalled 410 to 810 #0 waited 400 done 1210 ");
  EXPECT_THROW(work.state()->wait(4), Error);
}

TEST(VirtualCommunicator, ShardsTakeARoundEachWhereTheyAreAskedFor) {
  Rank rank;
  rank.network->gathers_by_shards = false;
  const Work together = rank.world->issue(rank.gather(400));
  together.state()->wait(1);
  EXPECT_EQ(rank.now(), 1210);
  together.wait();
  Collective gather = rank.gather(400);
  gather.by_shards = true;
  const Work asked = rank.world->issue(gather);
  asked.state()->wait(0);
  EXPECT_EQ(rank.now(), 1210);
  asked.state()->wait(1);
  EXPECT_EQ(rank.now(), 1620);
  asked.state()->wait(2);
  EXPECT_EQ(rank.now(), 2030);
  asked.wait();
  EXPECT_EQ(rank.now(), 2440);
}

TEST(VirtualCommunicator, CommunicatorsOfOneLinkShareItAndOthersDoNot) {
  Rank rank;
  const std::vector<int> all = {0, 1, 2, 3};
  const auto a = rank.world->subgroup(all, "a"), slow = rank.world->subgroup(all, "slow");
  const Work first = rank.world->issue(rank.gather(400)), second = a->issue(rank.gather(400));
  const Work third = slow->issue(rank.gather(400));
  first.wait();
  EXPECT_EQ(rank.now(), 2410);
  second.wait();
  EXPECT_EQ(rank.now(), 2410);
  third.wait();
  EXPECT_EQ(rank.now(), 2410);
}

TEST(VirtualCommunicator, ASubgroupKnowsItsMembersOfTheWorld) {
  Rank rank;
  const auto pair = rank.world->subgroup(std::vector<int>{0, 2}, "tp");
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(pair->rank(), 0);
  EXPECT_THROW(rank.world->subgroup(std::vector<int>{1, 2}, "tp"), Error);
  EXPECT_THROW(rank.world->subgroup(std::vector<int>{0, 4}, "tp"), Error);
}

TEST(VirtualCommunicator, ThePoisonedOneFails) {
  Rank rank;
  const Work work = rank.world->issue(rank.gather(4));
  rank.world->poison("a peer left");
  EXPECT_THROW(work.wait(), Error);
}

}  // namespace
}  // namespace coshard
