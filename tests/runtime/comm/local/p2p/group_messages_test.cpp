// Messages whose other side is in another process.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/comm/local/thread_group.h"
#include "tests/support/fake_mpi.h"

namespace coshard {
namespace {

Work post(Communicator& comm, CollectiveKind kind, int peer, std::vector<float>& data) {
  Collective c;
  c.kind = kind;
  c.root = peer;
  c.extent = static_cast<std::int64_t>(data.size());
  if (kind == CollectiveKind::Send)
    c.send = data.data();
  else
    c.recv = data.data();
  return comm.issue(c);
}

// Two ranks in each of two processes.
template <class Body>
std::vector<std::string> on_four(std::uint64_t seed, const Body& body) {
  return testing::on_processes(4, 2, seed, body);
}

TEST(GroupMessages, OfEverySizeArriveInOrderWhoeverPostsFirst) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto failures = on_four(seed, [](Communicator& comm, int rank) {
      const int peer = 3 - rank;  // in the other process
      for (const std::size_t size : {0, 1, 1000, 300'000}) {
        std::vector<std::vector<float>> data;
        std::vector<Work> works;
        for (int i = 0; i < 5; ++i) data.emplace_back(size, rank < 2 ? static_cast<float>(i) : -1);
        for (auto& one : data)
          works.push_back(
              post(comm, rank < 2 ? CollectiveKind::Send : CollectiveKind::Recv, peer, one));
        for (const Work& work : works) work.wait();
        for (std::size_t i = 0; i < data.size(); ++i)
          for (const float value : data[i]) ASSERT_EQ(value, static_cast<float>(i));
      }
    });
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  }
}

TEST(GroupMessages, ThatNobodyReceivesAreNamedAtTheDeadline) {
  std::atomic<bool> over{false};
  const auto failures = on_four(3, [&](Communicator& comm, int rank) {
    struct SetAtEnd {
      std::atomic<bool>& flag;
      ~SetAtEnd() { flag = true; }
    };
    std::vector<float> data(10);
    comm.set_timeout(100'000'000);
    if (rank == 0) {
      const SetAtEnd end{over};
      return post(comm, CollectiveKind::Send, 2, data).wait();
    }
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_NE(failures[0].find("timeout after 0.1 s on rank 0 waiting for send"), std::string::npos)
      << failures[0];
  EXPECT_NE(failures[0].find("missing: 2 ("), std::string::npos) << failures[0];
}

TEST(GroupMessages, OfDifferentSizesAreAnErrorOnBothSides) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {  // both processes may find it at once
    const auto failures = on_four(seed, [](Communicator& comm, int rank) {
      std::vector<float> data(rank == 1 ? 10 : 11);
      if (rank == 1) post(comm, CollectiveKind::Send, 3, data).wait();
      if (rank == 3) post(comm, CollectiveKind::Recv, 1, data).wait();
    });
    for (const int rank : {1, 3})
      EXPECT_NE(failures[static_cast<std::size_t>(rank)].find(
                    "ranks disagree on message #0 of tp[4]: rank 1 calls send f32 [10]"),
                std::string::npos)
          << failures[static_cast<std::size_t>(rank)];
  }
}

void compute_until(const std::atomic<bool>& over) {
  for (int i = 0; i < 10'000 && !over; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(over.load());
}

// The first side is posted and computes; its helper sleeps when the other side comes. MPI sends up to
// 4 KiB at once.
TEST(GroupMessages, AreMovedWhileTheRankThatHasPostedFirstComputes) {
  for (const bool sends : {true, false})
    for (const std::size_t size : {1, 4000, 20'000}) {
      std::atomic<bool> over{false};
      const auto failures = on_four(7, [&](Communicator& comm, int rank) {
        if (rank % 2 == 1) return compute_until(over);
        std::vector<float> data(size, static_cast<float>(rank));
        const bool mine = sends == (rank == 0);
        if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const Work work =
            post(comm, mine ? CollectiveKind::Send : CollectiveKind::Recv, 2 - rank, data);
        if (rank == 0) compute_until(over);
        work.wait();
        over = true;
        EXPECT_EQ(data.back(), sends ? 0.0F : 2.0F);
      });
      for (const std::string& failure : failures) EXPECT_EQ(failure, "") << sends << ' ' << size;
    }
}

// What is sent is computed by a collective that ends while the sender computes.
TEST(GroupMessages, BehindACollectiveAreSentWhileTheSenderComputes) {
  for (const std::size_t size : {1, 4000, 20'000}) {
    std::atomic<bool> over{false};
    const auto failures = testing::on_processes(2, 1, 7, [&](Communicator& comm, int rank) {
      std::vector<float> sum(size, 1.0F), data(size);
      Collective all;
      all.kind = CollectiveKind::AllReduce;
      all.extent = static_cast<std::int64_t>(size);
      all.send = all.recv = sum.data();
      if (rank == 0) {
        const Work first = comm.issue(all);
        Collective send;
        send.kind = CollectiveKind::Send;
        send.root = 1;
        send.extent = all.extent;
        send.send = sum.data();
        send.after = first.state();
        const Work work = comm.issue(send);
        compute_until(over);
        first.wait();
        work.wait();
      } else {
        const Work work = post(comm, CollectiveKind::Recv, 0, data);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        comm.issue(all).wait();
        work.wait();
        over = true;
        EXPECT_EQ(data.back(), 2.0F);
      }
    });
    for (const std::string& failure : failures) EXPECT_EQ(failure, "") << size;
  }
}

}  // namespace
}  // namespace coshard
