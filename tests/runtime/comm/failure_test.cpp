// Peers that are late, gone or failed: nobody waits for ever, and the error says for whom.
#include <atomic>
#include <barrier>
#include <chrono>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::test {
namespace {

TEST(Failure, ATimeoutNamesTheCollectiveWhoArrivedAndWhoIsMissing) {
  std::atomic<int> ended{0};
  const auto outcomes = outcomes_on_ranks(3, [&](Communicator& comm, int rank) {
    std::vector<float> data(4);
    comm.issue(sum_of(data)).wait();
    if (rank == 2) {  // alive, but does not come in time
      while (ended.load() < 2) std::this_thread::yield();
      comm.issue(sum_of(data)).wait();
      return;
    }
    comm.set_timeout(kSecond / 5);
    Collective c = sum_of(data);
    c.label = "S(0)->R";
    const Ticket ticket = comm.issue(c);
    try {
      ticket.wait();
    } catch (...) {
      ++ended;
      throw;
    }
  });
  int timeouts = 0;
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    timeouts += outcome.kind == ErrorKind::Timeout;
    EXPECT_NE(outcome.text.find("timeout after 0.2 s on rank"), std::string::npos) << outcome.text;
    EXPECT_NE(
        outcome.text.find("waiting for all_reduce #1 on tp[3] (S(0)->R) at failure_test.cpp:"),
        std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("missing: 2 (last issued #0 all_reduce "), std::string::npos)
        << outcome.text;
  }
  EXPECT_GE(timeouts, 1);
  EXPECT_EQ(outcomes[2].kind, ErrorKind::CommFailed);
}

TEST(Failure, PoisonEndsASleepingWaiterWithTheCause) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    comm.set_timeout(0);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.poison("the disk is full");
      comm.poison("and so is the glass");
      return;
    }
    std::vector<float> data(4);
    comm.issue(sum_of(data)).wait();
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
  EXPECT_NE(outcomes[0].text.find("the disk is full"), std::string::npos) << outcomes[0].text;
}

TEST(Failure, APoisonedCommunicatorFailsEveryLaterWait) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int) {
    std::vector<float> data(4, 1.0F);
    comm.issue(sum_of(data)).wait();
    comm.poison("the disk is full");
    const Ticket ticket = comm.issue(sum_of(data));
    EXPECT_TRUE(ticket.ready());
    ticket.wait();
  });
  int failed = 0;
  for (const Outcome& outcome : outcomes) failed += outcome.failed;
  EXPECT_EQ(failed, 2);
}

TEST(Failure, ARankThatLeftIsNamedAtOnce) {
  for (bool with_parts : {false, true}) {
    const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
      comm.set_timeout(0);
      std::vector<float> data(4), whole(8);
      comm.issue(sum_of(data)).wait();
      if (rank == 1) return;
      Collective c = sum_of(data);
      if (with_parts) {
        c.kind = CollectiveKind::AllGather;
        c.extent = 8;
        c.recv = whole.data();
        comm.issue(c).state()->wait_part(1);
      }
      comm.issue(c).wait();
    });
    EXPECT_FALSE(outcomes[1].failed);
    EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
    EXPECT_NE(outcomes[0].text.find("rank 1 left after #0"), std::string::npos) << outcomes[0].text;
  }
}

TEST(Failure, WhatARankIssuedBeforeItLeftStillCompletes) {
  on_ranks(2, [](Communicator& comm, int rank) {
    auto data = std::make_shared<std::vector<float>>(100'000, 1.0F);
    Collective c = sum_of(*data);
    c.keep_send = data;
    const Ticket ticket = comm.issue(c);
    if (rank == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ticket.wait();
    EXPECT_EQ(data->back(), 2.0F);
  });
}

TEST(Failure, NoPeerTouchesTheBuffersOfARankThatFailed) {
  // Under AddressSanitizer: the vectors die while a peer could still be copying.
  for (int round = 0; round < 20; ++round) {
    outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
      std::vector<float> a(1'000'000, 1.0F), b(2'000'000);
      Collective c = sum_of(a);
      if (round % 2 == 0) {
        c.kind = CollectiveKind::AllGather;
        c.extent = 2'000'000;
        c.recv = b.data();
      }
      const Ticket ticket = comm.issue(c);
      if (rank == 1) comm.poison("enough");
      ticket.wait();
    });
  }
}

TEST(Failure, TheFabricPoisonsSubgroups) {
  LocalFabric fabric(2);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  std::barrier ready(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = fabric.communicator(rank);
      const std::vector<int> both{0, 1};
      const auto group = world->subgroup(both, "dp");
      ready.arrive_and_wait();
      if (rank == 1) {
        fabric.poison("rank 1 ended with: boom");
        return;
      }
      std::vector<float> data(4);
      try {
        group->issue(sum_of(data)).wait();
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("boom"), std::string::npos) << error.what();
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 1);
}

TEST(Failure, ASubgroupWithARankThatHasLeftFailsAtOnce) {
  LocalFabric fabric(2);
  const auto world = fabric.communicator(0);
  fabric.leave(1);
  const std::vector<int> both{0, 1};
  std::vector<float> data(4);
  EXPECT_THROW(world->subgroup(both, "dp")->issue(sum_of(data)).wait(), Error);
}

}  // namespace
}  // namespace coshard::test
