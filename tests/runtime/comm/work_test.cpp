// Peers that are late, gone or failed: nobody waits for ever, and the error says for whom.
#include <atomic>
#include <barrier>
#include <chrono>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

TEST(Failure, ATimeoutNamesTheCollectiveWhoArrivedAndWhoIsMissing) {
  std::atomic<int> ended{0};
  const auto outcomes = outcomes_on_ranks(3, [&](Communicator& comm, int rank) {
    Floats data(4UL);
    wait_on_host(comm.issue(sum_of(data)));
    if (rank == 2) {  // alive, but does not come in time
      while (ended.load() < 2) std::this_thread::yield();
      wait_on_host(comm.issue(sum_of(data)));
      return;
    }
    comm.set_timeout(kSecond / 5);
    Collective c = sum_of(data);
    c.label = "S(0)->R";
    const Work work = comm.issue(c);
    try {
      wait_on_host(work);
    } catch (...) {
      ++ended;
      throw;
    }
  });
  int timeouts = 0;
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    timeouts += outcome.kind == ErrorKind::Timeout;
    const auto at = outcome.text.find("timeout after ");
    ASSERT_NE(at, std::string::npos) << outcome.text;
    EXPECT_GE(std::stod(outcome.text.substr(at + 14)), 0.2) << outcome.text;
    EXPECT_NE(
        outcome.text.find("waiting for all_reduce #1 on world[3] (S(0)->R) at work_test.cpp:"),
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
    Floats data(4UL);
    wait_on_host(comm.issue(sum_of(data)));
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
  EXPECT_NE(outcomes[0].text.find("the disk is full"), std::string::npos) << outcomes[0].text;
}

TEST(Failure, APoisonedCommunicatorFailsEveryLaterWait) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int) {
    Floats data(4UL, 1.0F);
    wait_on_host(comm.issue(sum_of(data)));
    comm.poison("the disk is full");
    const Work work = comm.issue(sum_of(data));
    EXPECT_TRUE(work.ready());
    wait_on_host(work);
  });
  int failed = 0;
  for (const Outcome& outcome : outcomes) failed += outcome.failed;
  EXPECT_EQ(failed, 2);
}

TEST(Failure, ARankThatLeftIsNamedAtOnce) {
  for (bool with_parts : {false, true}) {
    const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
      comm.set_timeout(0);
      Floats data(4UL), whole(8UL);
      wait_on_host(comm.issue(sum_of(data)));
      if (rank == 1) return;
      Collective c = sum_of(data);
      if (with_parts) {
        c.kind = CollectiveKind::AllGather;
        c.extent = 8;
        c.recv = whole.put();
        comm.issue(c).state()->wait(1);
        device_here()->synchronize();
      }
      comm.issue(c).wait();
    });
    EXPECT_FALSE(outcomes[1].failed);
    EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
    EXPECT_NE(outcomes[0].text.find("rank 1 left the program after #0"), std::string::npos)
        << outcomes[0].text;
  }
}

TEST(Failure, WhatARankIssuedBeforeItLeftStillCompletes) {
  on_ranks(2, [](Communicator& comm, int rank) {
    Floats data(100'000UL, 1.0F);
    const Collective c = sum_of(data);
    const Work work = comm.issue(c);
    if (rank == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    work.wait();
    EXPECT_EQ(data.get().back(), 2.0F);
  });
}

TEST(Failure, NoPeerTouchesTheBuffersOfARankThatFailed) {
  // Under AddressSanitizer: the vectors die while a peer could still be copying.
  for (int round = 0; round < 20; ++round) {
    outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
      Floats a(1'000'000UL, 1.0F), b(2'000'000UL);
      Collective c = sum_of(a);
      c.keep_send.reset();
      if (round % 2 == 0) {
        c.kind = CollectiveKind::AllGather;
        c.extent = 2'000'000;
        c.recv = b.put();
      }
      const Work work = comm.issue(c);
      if (rank == 1) comm.poison("enough");
      work.wait();
    });
  }
}

TEST(Failure, TheFabricPoisonsSubgroups) {
  ThreadGroup thread_group(2);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  std::barrier ready(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = communicator_of(thread_group.communicator(rank), rank, 0);
      const std::vector<int> both{0, 1};
      const auto group = world->subgroup(both, "dp");
      ready.arrive_and_wait();
      if (rank == 1) {
        thread_group.poison("rank 1 ended with: boom");
        return;
      }
      Floats data(4UL);
      try {
        wait_on_host(group->issue(sum_of(data)));
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
  ThreadGroup thread_group(2);
  const auto world = communicator_of(thread_group.communicator(0), 0, 0);
  thread_group.leave(1);
  const std::vector<int> both{0, 1};
  Floats data(4UL);
  EXPECT_THROW(wait_on_host(world->subgroup(both, "dp")->issue(sum_of(data))), Error);
}

}  // namespace
}  // namespace coshard::testing
