// Send and recv inside a communicator.
#include <atomic>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

Collective message(CollectiveKind kind, int peer, Floats& data,
                   CallSite where = CallSite::current()) {
  Collective c;
  c.kind = kind;
  c.root = peer;
  c.extent = data.size();
  if (kind == CollectiveKind::Send)
    c.send = data.put();
  else
    c.recv = data.put();
  c.where = where;
  return c;
}

TEST(Message, ArrivesAtItsPeer) {
  for (std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{500'000}}) {
    on_ranks(2, [&](Communicator& comm, int rank) {
      Floats data(size, rank == 0 ? 7.0F : 0.0F);
      comm.issue(message(rank == 0 ? CollectiveKind::Send : CollectiveKind::Recv, 1 - rank, data))
          .wait();
      data.get();
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(data[i], 7.0F);
    });
  }
}

TEST(Message, RanksThatBothSendFirstDoNotBlockEachOther) {
  for (std::size_t size : {std::size_t{10}, std::size_t{500'000}}) {
    on_ranks(3, [&](Communicator& comm, int rank) {
      Floats mine(size, static_cast<float>(rank)), got(size);
      const Work sent = comm.issue(message(CollectiveKind::Send, (rank + 1) % 3, mine));
      comm.issue(message(CollectiveKind::Recv, (rank + 2) % 3, got)).wait();
      sent.wait();
      EXPECT_EQ(got.get().back(), static_cast<float>((rank + 2) % 3));
    });
  }
}

TEST(Message, ASendIsCompleteOnlyWhenItWasReceived) {
  std::atomic<int> stage{0};
  on_ranks(2, [&](Communicator& comm, int rank) {
    Floats data(10UL, 1.0F);
    if (rank == 1) {
      while (stage.load() == 0) std::this_thread::yield();
      comm.issue(message(CollectiveKind::Recv, 0, data)).wait();
      return;
    }
    const Work sent = comm.issue(message(CollectiveKind::Send, 1, data));
    EXPECT_FALSE(sent.ready());
    stage = 1;
    sent.wait();
  });
}

TEST(Message, MessagesOfAPairKeepTheirOrderAndCountAsNoCollective) {
  on_ranks(2, [](Communicator& comm, int rank) {
    std::vector<Floats> data;
    for (int i = 0; i < 50; ++i) data.emplace_back(3UL, rank == 0 ? static_cast<float>(i) : 0.0F);
    std::vector<Work> works;
    for (std::size_t i = 0; i < data.size(); ++i) {
      works.push_back(comm.issue(
          message(rank == 0 ? CollectiveKind::Send : CollectiveKind::Recv, 1 - rank, data[i])));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < data.size(); ++i)
      EXPECT_EQ(data[i].get()[2], static_cast<float>(i));
    EXPECT_EQ(comm.issued(), 0U);
  });
}

TEST(Message, ADifferentCountIsAnErrorOnBothSides) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    Floats data(rank == 0 ? 3UL : 4UL);
    comm.issue(message(rank == 0 ? CollectiveKind::Send : CollectiveKind::Recv, 1 - rank, data))
        .wait();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("rank 0 calls send f32 [3] to 1 at message_test.cpp"),
              std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1 calls recv f32 [4] from 0"), std::string::npos)
        << outcome.text;
  }
}

TEST(Message, ToARankThatLeftFails) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    comm.set_timeout(0);
    Floats data(3UL);
    if (rank == 0) comm.issue(message(CollectiveKind::Recv, 1, data)).wait();
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
  EXPECT_NE(outcomes[0].text.find("rank 1 left the program, having issued no collective"),
            std::string::npos)
      << outcomes[0].text;
}

TEST(Message, ATimeoutNamesThePeer) {
  std::atomic<bool> over{false};
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    if (rank == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    comm.set_timeout(kSecond / 20);
    Floats data(3UL);
    try {
      wait_on_host(comm.issue(message(CollectiveKind::Recv, 1, data)));
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::Timeout);
  EXPECT_NE(outcomes[0].text.find("waiting for recv #0 on world[2]"), std::string::npos)
      << outcomes[0].text;
  EXPECT_NE(outcomes[0].text.find("missing: 1"), std::string::npos) << outcomes[0].text;
}

}  // namespace
}  // namespace coshard::testing
