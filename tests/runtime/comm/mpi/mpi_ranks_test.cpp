// Ranks in several processes: what they compute, how a failure of one reaches all.
#include "runtime/comm/mpi/mpi_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/coro/fault_switch.h"
#include "tests/support/fake_mpi.h"

namespace coshard {
namespace {

using testing::on_processes;

std::vector<float> sums_of(int ranks, int per_process, std::uint64_t seed, std::int64_t count) {
  std::vector<float> result;
  const auto failures = on_processes(ranks, per_process, seed, [&](Communicator& comm, int rank) {
    std::vector<float> data(static_cast<std::size_t>(count));
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = 1.0F / (1.0F + static_cast<float>(rank * 31 + round) + static_cast<float>(i));
      Collective c;
      c.kind = CollectiveKind::AllReduce;
      c.extent = count;
      c.send = c.recv = data.data();
      comm.issue(c).wait();
    }
    if (rank == ranks - 1) result = data;
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return result;
}

TEST(MpiRanks, SumInTheOrderOfRanksAndSoTheBitsOfThreads) {
  for (const std::int64_t count : {1, 1000, 100'003}) {
    const std::vector<float> threads = sums_of(4, 4, 1, count);
    for (const int per_process : {1, 2})
      for (std::uint64_t seed = 1; seed <= 5; ++seed)
        EXPECT_EQ(sums_of(4, per_process, seed, count), threads) << per_process << ' ' << seed;
  }
}

Collective announced(int line) {
  Collective c;
  c.control_only = true;
  c.where = {"train.cpp", line};
  return c;
}

// Over a network that delivers in any order that MPI allows.
TEST(MpiRanks, AnnounceACollectiveToOneProcessOnly) {
  for (const int processes : {2, 4, 8}) {
    constexpr int kTimes = 600;
    testing::FakeProcesses all(processes, 1, 7);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < processes; ++rank)
      threads.emplace_back([&all, rank] {
        auto mine = all.group_of(rank).communicator(rank);
        mine->set_timeout(60'000'000'000);
        for (int i = 0; i + 1 < kTimes; ++i) (void)mine->issue(announced(i));
        mine->issue(announced(kTimes)).wait();
        mine->issue(Collective()).wait();
      });
    for (std::thread& thread : threads) thread.join();
    const int others = processes - 1;  // a RunNotice and a barrier to each
    for (int p = 0; p < processes; ++p)
      EXPECT_LE(all.mpi().sent(p).messages, kTimes + kTimes / 128 + 2 * others);
  }
}

TEST(MpiRanks, AnAnnouncedDifferenceOfAnyRankIsNamedOnAll) {
  for (const int processes : {2, 4, 8})
    for (int other = 0; other < processes; ++other) {
      const auto failures = on_processes(processes, 1, 3, [&](Communicator& comm, int rank) {
        for (int i = 0; i < 3; ++i) (void)comm.issue(announced(5));
        Collective c = announced(rank == other ? 7 : 6);
        if (rank == other) c.kind = CollectiveKind::AllReduce;
        const Work work = comm.issue(c);
        for (;;) {
          work.state()->check(0);
          std::this_thread::yield();
        }
      });
      for (const std::string& failure : failures)
        for (const char* line : {"train.cpp:6", "train.cpp:7"})
          EXPECT_NE(failure.find(line), std::string::npos) << failure;
    }
}

TEST(MpiRanks, ShareGroupsThatOnlySomeOfThemMake) {
  const auto failures = on_processes(4, 1, 3, [](Communicator& comm, int rank) {
    const std::vector<int> mine = rank % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3};
    for (int turn = 0; turn < 3; ++turn) {
      const auto group = comm.subgroup(mine, "dp");
      std::vector<std::int64_t> all(2);
      const std::int64_t send = 10 * turn + rank;
      Collective c;
      c.kind = CollectiveKind::AllGather;
      c.dtype = DType::I64;
      c.extent = 2;
      c.send = &send;
      c.recv = all.data();
      group->issue(c).wait();
      EXPECT_EQ(all[0], 10 * turn + mine[0]);
      EXPECT_EQ(all[1], 10 * turn + mine[1]);
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(MpiRanks, ThatAreToldOfAPoisonFailWithItsCause) {
  const auto failures = on_processes(4, 2, 5, [](Communicator& comm, int rank) {
    if (rank == 1) return comm.poison("disk full");
    comm.issue({}).wait();
  });
  for (const int rank : {0, 2, 3})
    EXPECT_NE(failures[static_cast<std::size_t>(rank)].find("disk full"), std::string::npos)
        << failures[static_cast<std::size_t>(rank)];
}

TEST(MpiRanks, ThatWaitForOneThatHasLeftAreToldSo) {
  const auto failures = on_processes(3, 1, 7, [](Communicator& comm, int rank) {
    if (rank != 2) comm.issue({}).wait();
  });
  for (const int rank : {0, 1})
    EXPECT_NE(failures[static_cast<std::size_t>(rank)].find("rank 2 left the program, having "
                                                            "issued no collective"),
              std::string::npos)
        << failures[static_cast<std::size_t>(rank)];
}

// The deadline of the wait passes; what other processes tell lasts for the whole test.
TEST(MpiRanks, ThatWaitForOneWhichMayWaitForASlowLinkDoSoBeyondTheDeadline) {
  for (const bool may_wait : {true, false}) {
    testing::FakeProcesses processes(3, 1, 11);
    processes.engine(0).set_deadline(3'600'000'000'000);
    processes.engine(0).may_wait(2);
    if (may_wait) processes.engine(0).may_wait(1);
    std::string failure;
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto mine = processes.group_of(rank).communicator(rank);
        mine->set_timeout(rank == 0 ? 50'000'000 : 60'000'000'000);
        try {
          for (int i = 0; i < 150 && rank == 1 && !over.load(); ++i)  // while they may
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          mine->issue({}).wait();
        } catch (const std::exception& error) {
          if (rank == 0) failure = error.what();
        }
        if (rank == 0) over.store(true);
      });
    for (std::thread& thread : threads) thread.join();
    if (may_wait)
      EXPECT_EQ(failure, "");
    else
      EXPECT_NE(failure.find("missing: 1"), std::string::npos) << failure;
  }
}

// Of its own process, whose ranks are threads: a third one is elsewhere.
TEST(MpiRanks, ThatWaitForANeighbourWhichMayWaitForASlowLinkDoSoBeyondTheDeadline) {
  testing::FakeProcesses processes(4, 2, 11);
  processes.engine(0).set_deadline(3'600'000'000'000);
  processes.engine(0).may_wait(0);
  std::string failure;
  std::vector<std::thread> threads;
  for (const int rank : {0, 1})
    threads.emplace_back([&, rank] {
      const auto mine = processes.group_of(rank).communicator(rank);
      const auto pair = mine->subgroup(std::vector{0, 1}, "tp");
      pair->set_timeout(rank == 0 ? 50'000'000 : 60'000'000'000);
      try {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(150));
        pair->issue({}).wait();
      } catch (const std::exception& error) {
        failure += error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failure, "");
}

// Its notices are the news that the wait lasts by, as long as they come.
TEST(MpiRanks, ThatWaitForOneWhichIssuesNothingMoreFailThoughItLives) {
  constexpr int kOps = 40;
  testing::FakeProcesses processes(2, 1, 11);
  std::string failure;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto mine = processes.group_of(rank).communicator(rank);
      mine->set_timeout(rank == 0 ? 300'000'000 : 60'000'000'000);
      try {
        std::vector<Work> works;
        for (int i = 0; i < (rank == 0 ? kOps : kOps / 2); ++i) works.push_back(mine->issue({}));
        if (rank == 0) works.back().wait();
        while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const std::exception& error) {
        if (rank == 0) failure = error.what();
      }
      over.store(true);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(failure.find("timeout after "), std::string::npos) << failure;
  EXPECT_NE(failure.find("missing: 1 (last issued #19"), std::string::npos) << failure;
}

std::atomic<int> polls{0};
const MpiApi* polled = nullptr;

// A busy machine polls less often still.
TEST(MpiRanks, ThatComputeWhileAPeerIsLateAskMpiOnceAMillisecond) {
  testing::FakeMpi mpi(2, 11);
  MpiApi api = mpi.api(0);
  polled = &mpi.api(0);
  api.poll = [](const MpiDone** done, int* count) { return ++polls, polled->poll(done, count); };
  const auto engine = std::make_shared<MpiEngine>(api);
  {
    const auto ranks = std::make_shared<MpiRanks>(engine, 1, 1);
    ThreadGroup group(2, "world", {.progress_threads = 1, .remote = ranks, .key = 1});
    ranks->tell({});
    const auto mine = group.communicator(0);
    const Work late = mine->issue({});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int before = polls;
    const std::int64_t begin = now_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_GT(polls, before);
    EXPECT_LE(polls - before, (now_ns() - begin) / 1'000'000 + 60);
    ranks->stop();
  }
  engine->forget();
}

// Rank 0 has the notice of rank 1 already, so its own collective is complete when it is issued; what
// it sends for that is longer than MPI sends at once.
TEST(MpiRanks, ThatComputeAfterACompleteCollectiveStillSendTheirPart) {
  std::atomic<bool> over{false};
  const auto failures = on_processes(2, 1, 5, [&](Communicator& comm, int rank) {
    std::vector<float> data(1100, 1.0F), token(1);
    Collective sum, message;
    sum.kind = CollectiveKind::AllReduce;
    sum.extent = 1100;
    sum.send = sum.recv = data.data();
    message.kind = rank == 0 ? CollectiveKind::Recv : CollectiveKind::Send;
    message.extent = 1;
    message.root = 1 - rank;
    message.send = message.recv = token.data();
    if (rank == 1) {
      const auto mine = comm.issue(sum);
      comm.issue(message).wait();  // arrives after the notice of the sum
      mine.wait();
      over.store(true);
    } else {
      comm.issue(message).wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // its helper sleeps meanwhile
      const auto mine = comm.issue(sum);
      for (int i = 0; i < 10'000 && !over; ++i)  // computes
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(over.load());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(MpiRanks, ThatComputeAfterASendStillSendIt) {
  std::atomic<bool> over{false};
  const auto failures = on_processes(2, 1, 5, [&](Communicator& comm, int rank) {
    std::vector<float> data(4000, 1.0F), token(1);
    Collective first, message;
    first.kind = CollectiveKind::AllReduce;
    first.extent = 1;
    first.send = first.recv = token.data();
    message.kind = rank == 0 ? CollectiveKind::Send : CollectiveKind::Recv;
    message.extent = 4000;
    message.root = 1 - rank;
    message.send = message.recv = data.data();
    const auto before = comm.issue(first);
    if (rank == 1) {
      comm.issue(message).wait();
      over.store(true);
    } else {
      before.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto mine = comm.issue(message);
      for (int i = 0; i < 10'000 && !over; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(over.load());
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// The run's first and a rank's last notice, which no collective or message follows.
TEST(MpiRanks, SendNoticesWhileNobodyWaits) {
  testing::FakeProcesses processes(2, 1, 5);
  const auto sent = [&] {
    for (int i = 0; i < 10'000 && processes.engine(0).in_flight() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return processes.engine(0).in_flight() == 0;
  };
  EXPECT_TRUE(sent());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // its helper sleeps by then
  processes.leave(0);
  EXPECT_TRUE(sent());
}

// The last owner of a run's ranks may be a block that arrives while the next run goes on.
TEST(MpiRanks, OfARunThatIsOverLeaveTheNextOneAlone) {
  testing::FakeMpi mpi(2, 9);
  const auto mine = std::make_shared<MpiEngine>(mpi.api(0));
  MpiEngine other(mpi.api(1));
  int late = 0, data = 7, left = -1;
  auto first = std::make_shared<MpiRanks>(mine, 1, 1);
  first->tell({});
  mine->receive(&late, sizeof late, 1, 5, [kept = first] {});
  first->stop();
  first.reset();
  MpiRanks second(mine, 1, 2);
  MpiRanks::Hooks hooks;
  hooks.left = [&](int rank) { left = rank; };
  second.tell(std::move(hooks));
  other.send(&data, sizeof data, 0, 5, [] {});
  for (int i = 0; i < 1000 && late != 7; ++i) mine->drive(), other.drive();
  ASSERT_EQ(late, 7);
  other.send_notice(0, to_bytes(LeftNotice{2, 1}));
  for (int i = 0; i < 1000 && left < 0; ++i) mine->drive(), other.drive();
  EXPECT_EQ(left, 1);
  second.stop();
  mine->give_up();
}

#ifndef NDEBUG
// A rank begins its next collective while another thread has yet to look at the last one again.
TEST(MpiRanks, ThatAreSlowTouchNoLaterCollective) {
  fault.store(Fault::ThreadsAreSlow);
  const auto failures = on_processes(2, 1, 1, [](Communicator& comm, int rank) {
    for (int round = 0; round < 200; ++round) {
      const bool gathers = round % 2 == 0;
      float mine = static_cast<float>(10 * round + rank);
      std::vector<float> all(2);
      int completed = 0;
      Collective c;
      c.kind = gathers ? CollectiveKind::AllGather : CollectiveKind::AllReduce;
      c.extent = gathers ? 2 : 1;
      c.send = &mine;
      c.recv = all.data();
      c.complete = [&] { ++completed; };
      const Work work = comm.issue(c);
      std::this_thread::sleep_for(std::chrono::microseconds(500 * (round % 4)));
      work.wait();
      EXPECT_EQ(completed, 1);
      const float first = static_cast<float>(10 * round);
      EXPECT_EQ(all[0], gathers ? first : 2 * first + 1);
      EXPECT_EQ(all[1], gathers ? first + 1 : 0);
    }
  });
  fault.store(Fault::None);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}
#endif

}  // namespace
}  // namespace coshard
