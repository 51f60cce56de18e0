// Between issue and wait: what is ready when, and who does the work.
#include <atomic>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

constexpr std::size_t kLarge = 1'000'000;  // elements; cut into chunks
const std::size_t kSizes[] = {16, kLarge};

void wait_for(const std::atomic<int>& stage, int value) {
  while (stage.load() < value) std::this_thread::yield();
}

Collective gather_of(Floats& send, Floats& recv) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.dtype = DType::F32;
  c.extent = recv.size();
  c.send = send.put();
  c.recv = recv.put();
  return c;
}

// By which a rank tells a peer, in another process too, that it may go on.
Work signal(Communicator& comm, CollectiveKind kind, int peer, Floats& one) {
  Collective c;
  c.kind = kind;
  c.root = peer;
  c.extent = one.size();
  if (kind == CollectiveKind::Send)
    c.send = one.put();
  else
    c.recv = one.put();
  return comm.issue(c);
}

TEST(InFlight, AWorkHandleIsNotReadyBeforeAllRanksHaveIssued) {
  for (std::size_t size : kSizes) {
    on_ranks(2, [&](Communicator& comm, int rank) {
      Floats data(size, 1.0F), one(1UL);
      if (rank == 1) signal(comm, CollectiveKind::Recv, 0, one).wait();
      const Work work = comm.issue(sum_of(data));
      if (rank == 0) {
        EXPECT_FALSE(work.ready());
        signal(comm, CollectiveKind::Send, 1, one).wait();
      }
      work.wait();
      EXPECT_EQ(data.get().back(), 2.0F);
      EXPECT_TRUE(work.ready());
    });
  }
}

TEST(InFlight, APeerThatWaitsCompletesItForOneThatComputes) {
  if (!on_cpu()) GTEST_SKIP() << "the device does it";
  for (std::size_t size : kSizes) {
    std::atomic<int> stage{0};
    on_ranks(2, [&](Communicator& comm, int rank) {
      Floats data(size, 1.0F);
      const Work work = comm.issue(sum_of(data));
      if (rank == 1) {
        work.wait();
        stage = 1;
        return;
      }
      wait_for(stage, 1);  // rank 0 has not touched its work
      EXPECT_EQ(data.get().front(), 2.0F);
      EXPECT_EQ(data.back(), 2.0F);
      EXPECT_TRUE(work.ready());
    });
  }
}

TEST(InFlight, PollingAloneCompletesALargeCollective) {
  on_ranks(2, [](Communicator& comm, int) {
    Floats data(kLarge, 1.0F);
    const Work work = comm.issue(sum_of(data));
    while (!work.ready()) std::this_thread::yield();
    EXPECT_EQ(data.get().back(), 2.0F);
  });
}

TEST(InFlight, ManyCollectivesMayBeInFlightAndAreAwaitedInAnyOrder) {
  on_ranks(3, [](Communicator& comm, int rank) {
    std::vector<Floats> data;
    for (int i = 0; i < 200; ++i) data.emplace_back(100UL, static_cast<float>(rank));
    std::vector<Work> works;
    for (auto& one : data) works.push_back(comm.issue(sum_of(one)));
    for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
    for (auto& one : data) EXPECT_EQ(one.get()[50], 3.0F);
    EXPECT_EQ(comm.issued(), 200U);
  });
}

TEST(InFlight, ADroppedWorkHandleStillServesThePeers) {
  for (std::size_t size : kSizes) {
    on_ranks(2, [&](Communicator& comm, int rank) {
      Floats data(size, 1.0F);
      const Collective c = sum_of(data);
      if (rank == 0) {
        (void)comm.issue(c);
        return;
      }
      comm.issue(c).wait();
      EXPECT_EQ(data.get().back(), 2.0F);
    });
  }
}

TEST(InFlight, BuffersAreLetGoWhenTheCollectiveIsOver) {
  std::atomic<int> stage{0};
  on_ranks(2, [&](Communicator& comm, int rank) {
    auto data = std::make_unique<Floats>(8UL, 1.0F);
    const std::weak_ptr<Buffer> watch = data->buffer();
    Collective c = sum_of(*data);
    data.reset();
    if (rank == 1) wait_for(stage, 1);
    const Work work = comm.issue(c);
    c.keep_send.reset();
    if (rank == 0) {
      EXPECT_FALSE(watch.expired());
      stage = 1;
    }
    work.wait();
    EXPECT_TRUE(watch.expired());
  });
}

TEST(InFlight, APartOfAnAllGatherIsReadyWhenItsSourceHasIssued) {
  if (!on_cpu()) GTEST_SKIP() << "parts travel when all ranks have issued";
  for (std::size_t size : kSizes) {
    on_ranks(3, [&](Communicator& comm, int rank) {
      Floats send(size, static_cast<float>(rank + 1)), recv(3 * size), one(1UL);
      if (rank == 2) signal(comm, CollectiveKind::Recv, 0, one).wait();
      const Work work = comm.issue(gather_of(send, recv));
      WorkState& state = *work.state();
      EXPECT_THROW(state.wait(3), Error);
      EXPECT_THROW(static_cast<void>(state.ready(3)), Error);
      EXPECT_EQ(state.poll(Poller::Await, 3), Poll::Done);  // wait() throws
      if (rank == 0) {
        state.wait(1);
        recv.get();
        EXPECT_EQ(recv[size], 2.0F);
        EXPECT_EQ(recv[2 * size - 1], 2.0F);
        EXPECT_TRUE(state.ready(0));
        EXPECT_EQ(recv.get()[0], 1.0F);
        EXPECT_FALSE(state.ready(2));
        EXPECT_FALSE(work.ready());
        signal(comm, CollectiveKind::Send, 2, one).wait();
        state.wait(2);
        EXPECT_EQ(recv.get().back(), 3.0F);
      }
      work.wait();
      for (std::size_t part = 0; part < 3; ++part) {
        EXPECT_EQ(recv.get()[part * size], static_cast<float>(part + 1));
        EXPECT_TRUE(state.ready(static_cast<int>(part)));
      }
    });
  }
}

// The waiter sleeps already: an arrival alone has to wake it, also where all parts are small.
TEST(InFlight, APartThatArrivesWhileItsWaiterSleepsWakesIt) {
  if (!on_cpu()) GTEST_SKIP() << "parts travel when all ranks have issued";
  for (std::size_t size : kSizes) {
    std::atomic<int> stage{0};
    on_ranks(3, [&](Communicator& comm, int rank) {
      comm.set_timeout(2 * kSecond);
      Floats send(size, 1.0F), recv(3 * size);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (rank == 2) wait_for(stage, 1);
      const Work work = comm.issue(gather_of(send, recv));
      if (rank == 0) {
        const std::int64_t begin_ns = now_ns();
        work.state()->wait(1);
        EXPECT_LT(now_ns() - begin_ns, kSecond);
        stage = 1;
      }
      work.wait();
    });
  }
}

// All have come, so that nobody is late, however long the transfer takes.
TEST(InFlight, AWaitDuringItsTransferHasNoDeadline) {
  if (!on_cpu()) GTEST_SKIP() << "the device does it";
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather}) {
    ThreadGroup group(2);
    std::vector<float> send[2], recv[2];
    std::vector<Work> works;
    for (std::size_t r = 0; r < 2; ++r) {
      send[r].assign(4 * kLarge, 1.0F);
      recv[r].resize(8 * kLarge);
      const auto communicator = group.communicator(static_cast<int>(r));
      communicator->set_timeout(1);
      Collective c;
      c.kind = kind;
      c.extent =
          static_cast<std::int64_t>(kind == CollectiveKind::AllGather ? 8 * kLarge : 4 * kLarge);
      c.send = send[r].data();
      c.recv = recv[r].data();
      works.push_back(communicator->issue(c));
    }
    EXPECT_NO_THROW(works[1].state()->check(kSecond)) << to_string(kind);
    EXPECT_NO_THROW(works[0].wait()) << to_string(kind);
    works[1].wait();
    EXPECT_EQ(recv[1][4 * kLarge - 1], kind == CollectiveKind::AllGather ? 1.0F : 2.0F);
  }
}

TEST(InFlight, MoreRanksThanCoresMakeProgress) {
  on_ranks(16, [](Communicator& comm, int rank) {
    for (int round = 0; round < 50; ++round) {
      Floats data(round % 5 == 0 ? 20'000UL : 64UL, static_cast<float>(rank));
      comm.issue(sum_of(data)).wait();
      ASSERT_EQ(data.get().back(), 120.0F);
    }
  });
}

struct Watch final : Observer {
  std::vector<CommEvent> issues, completions;
  bool times_ordered = true;
  std::int64_t issued_at = 0;
  void issued(const CommEvent& event, std::int64_t now) override {
    issues.push_back(event);
    issued_at = now;
  }
  void ready(const CommEvent& event, std::int64_t begin, std::int64_t done,
             std::int64_t now) override {
    completions.push_back(event);
    times_ordered =
        times_ordered && issued_at <= begin && begin <= now && issued_at <= done && done <= now;
  }
};

TEST(InFlight, AnObserverIsToldOfEachIssueAndItsFirstCompletedWait) {
  on_ranks(2, [](Communicator& comm, int) {
    Watch watch;
    const ObserverSlot slot = std::make_shared<Observer*>(&watch);
    comm.observe(slot);
    Floats data(10UL, 1.0F);
    Collective c = sum_of(data);
    c.label = "gradients";
    const Work work = comm.issue(c);
    work.wait();
    work.wait();
    *slot = nullptr;
    comm.issue(c).wait();
    ASSERT_EQ(watch.issues.size(), 1U);
    ASSERT_EQ(watch.completions.size(), 1U);
    EXPECT_EQ(watch.issues[0].id, watch.completions[0].id);
    EXPECT_EQ(watch.issues[0].kind, CollectiveKind::AllReduce);
    EXPECT_EQ(watch.issues[0].bytes, 40);
    EXPECT_EQ(watch.issues[0].label, "gradients");
    EXPECT_EQ(watch.issues[0].communicator, "world");
    EXPECT_TRUE(watch.times_ordered);
  });
}

TEST(InFlight, AnObserverIsToldOfWhatAnAwaitedCollectiveDependsOn) {
  on_ranks(2, [](Communicator& comm, int) {
    Watch watch;
    const ObserverSlot slot = std::make_shared<Observer*>(&watch);
    comm.observe(slot);
    Floats one(10UL, 1.0F), two(10UL, 1.0F);
    const Work first = comm.issue(sum_of(one));
    Collective next = sum_of(two);
    next.after = first.state();
    const Work second = comm.issue(next);
    second.wait();
    first.wait();
    *slot = nullptr;
    ASSERT_EQ(watch.issues.size(), 2U);
    ASSERT_EQ(watch.completions.size(), 2U);
    EXPECT_EQ(watch.completions[0].id, watch.issues[0].id);
    EXPECT_EQ(watch.completions[1].id, watch.issues[1].id);
  });
}

}  // namespace
}  // namespace coshard::testing
