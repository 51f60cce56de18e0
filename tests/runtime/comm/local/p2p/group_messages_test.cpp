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

}  // namespace
}  // namespace coshard
