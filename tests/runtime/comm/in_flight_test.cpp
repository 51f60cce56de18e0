// Between issue and wait: what is ready when, and who does the work.
#include <atomic>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::test {
namespace {

constexpr std::size_t kLarge = 1'000'000;  // elements; cut into units
const std::size_t kSizes[] = {16, kLarge};

void wait_for(const std::atomic<int>& stage, int value) {
  while (stage.load() < value) std::this_thread::yield();
}

Collective gather_of(std::vector<float>& send, std::vector<float>& recv) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.dtype = DType::F32;
  c.extent = static_cast<std::int64_t>(recv.size());
  c.send = send.data();
  c.recv = recv.data();
  return c;
}

TEST(InFlight, ATicketIsNotReadyBeforeAllRanksHaveIssued) {
  for (std::size_t size : kSizes) {
    std::atomic<int> stage{0};
    on_ranks(2, [&](Communicator& comm, int rank) {
      std::vector<float> data(size, 1.0F);
      if (rank == 1) wait_for(stage, 1);
      const Ticket ticket = comm.issue(sum_of(data));
      if (rank == 0) {
        EXPECT_FALSE(ticket.ready());
        stage = 1;
      }
      ticket.wait();
      EXPECT_TRUE(ticket.ready());
      EXPECT_EQ(data.back(), 2.0F);
    });
  }
}

TEST(InFlight, APeerThatWaitsCompletesItForOneThatComputes) {
  for (std::size_t size : kSizes) {
    std::atomic<int> stage{0};
    on_ranks(2, [&](Communicator& comm, int rank) {
      std::vector<float> data(size, 1.0F);
      const Ticket ticket = comm.issue(sum_of(data));
      if (rank == 1) {
        ticket.wait();
        stage = 1;
        return;
      }
      wait_for(stage, 1);  // rank 0 has not touched its ticket
      EXPECT_EQ(data.front(), 2.0F);
      EXPECT_EQ(data.back(), 2.0F);
      EXPECT_TRUE(ticket.ready());
    });
  }
}

TEST(InFlight, PollingAloneCompletesALargeCollective) {
  on_ranks(2, [](Communicator& comm, int) {
    std::vector<float> data(kLarge, 1.0F);
    const Ticket ticket = comm.issue(sum_of(data));
    while (!ticket.ready()) std::this_thread::yield();
    EXPECT_EQ(data.back(), 2.0F);
  });
}

TEST(InFlight, ManyCollectivesMayBeInFlightAndAreAwaitedInAnyOrder) {
  on_ranks(3, [](Communicator& comm, int rank) {
    std::vector<std::vector<float>> data(200, std::vector<float>(100, static_cast<float>(rank)));
    std::vector<Ticket> tickets;
    for (auto& one : data) tickets.push_back(comm.issue(sum_of(one)));
    for (std::size_t i = tickets.size(); i-- > 0;) tickets[i].wait();
    for (const auto& one : data) EXPECT_EQ(one[50], 3.0F);
    EXPECT_EQ(comm.issued(), 200U);
  });
}

TEST(InFlight, ADroppedTicketStillServesThePeers) {
  for (std::size_t size : kSizes) {
    on_ranks(2, [&](Communicator& comm, int rank) {
      auto data = std::make_shared<std::vector<float>>(size, 1.0F);
      Collective c = sum_of(*data);
      c.keep_send = c.keep_recv = data;
      if (rank == 0) {
        (void)comm.issue(c);
        return;
      }
      comm.issue(c).wait();
      EXPECT_EQ(data->back(), 2.0F);
    });
  }
}

TEST(InFlight, BuffersAreLetGoWhenTheCollectiveIsOver) {
  std::atomic<int> stage{0};
  on_ranks(2, [&](Communicator& comm, int rank) {
    auto data = std::make_shared<std::vector<float>>(8, 1.0F);
    const std::weak_ptr<std::vector<float>> watch = data;
    Collective c = sum_of(*data);
    c.keep_send = data;
    data.reset();
    if (rank == 1) wait_for(stage, 1);
    const Ticket ticket = comm.issue(c);
    c.keep_send.reset();
    if (rank == 0) {
      EXPECT_FALSE(watch.expired());
      stage = 1;
    }
    ticket.wait();
    EXPECT_TRUE(watch.expired());
  });
}

TEST(InFlight, APartOfAnAllGatherIsReadyWhenItsSourceHasIssued) {
  for (std::size_t size : kSizes) {
    std::atomic<int> stage{0};
    on_ranks(3, [&](Communicator& comm, int rank) {
      std::vector<float> send(size, static_cast<float>(rank + 1)), recv(3 * size);
      if (rank == 2) wait_for(stage, 1);
      const Ticket ticket = comm.issue(gather_of(send, recv));
      TicketState& state = *ticket.state();
      ASSERT_EQ(state.parts(), 3);
      if (rank == 0) {
        state.wait_part(1);
        EXPECT_EQ(recv[size], 2.0F);
        EXPECT_EQ(recv[2 * size - 1], 2.0F);
        EXPECT_TRUE(state.part_ready(0));
        EXPECT_EQ(recv[0], 1.0F);
        EXPECT_FALSE(state.part_ready(2));
        EXPECT_FALSE(ticket.ready());
        stage = 1;
        state.wait_part(2);
        EXPECT_EQ(recv.back(), 3.0F);
      }
      ticket.wait();
      for (std::size_t part = 0; part < 3; ++part) {
        EXPECT_EQ(recv[part * size], static_cast<float>(part + 1));
        EXPECT_TRUE(state.part_ready(static_cast<int>(part)));
      }
    });
  }
}

TEST(InFlight, MoreRanksThanCoresMakeProgress) {
  on_ranks(16, [](Communicator& comm, int rank) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> data(round % 5 == 0 ? 20'000 : 64, static_cast<float>(rank));
      comm.issue(sum_of(data)).wait();
      ASSERT_EQ(data.back(), 120.0F);
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
    std::vector<float> data(10, 1.0F);
    Collective c = sum_of(data);
    c.label = "gradients";
    const Ticket ticket = comm.issue(c);
    ticket.wait();
    ticket.wait();
    *slot = nullptr;
    comm.issue(c).wait();
    ASSERT_EQ(watch.issues.size(), 1U);
    ASSERT_EQ(watch.completions.size(), 1U);
    EXPECT_EQ(watch.issues[0].id, watch.completions[0].id);
    EXPECT_EQ(watch.issues[0].kind, CollectiveKind::AllReduce);
    EXPECT_EQ(watch.issues[0].bytes, 40);
    EXPECT_EQ(watch.issues[0].label, "gradients");
    EXPECT_EQ(watch.issues[0].communicator, "tp");
    EXPECT_TRUE(watch.times_ordered);
  });
}

}  // namespace
}  // namespace coshard::test
