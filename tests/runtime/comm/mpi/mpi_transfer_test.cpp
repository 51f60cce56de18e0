// Data between processes: however they travel, the bits are those of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/device/make_device.h"
#include "tests/support/fake_mpi.h"

namespace coshard {
namespace {

using testing::FakeProcesses;
using Random = std::mt19937_64;

std::int64_t any(Random& random, std::int64_t most) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
}

Counts any_counts(Random& random, int ranks, std::int64_t most) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
  for (std::int64_t& count : counts) count = any(random, 3) == 0 ? 0 : any(random, most);
  return std::make_shared<const std::vector<std::int64_t>>(counts);
}

// One collective of all ranks: nothing to several chunks, cut evenly or not.
struct Case {
  Collective call;
  std::vector<std::vector<std::int64_t>> blocks;  // of a flat all_to_all: from, to
  bool in_place = false, kept = true;
};

Case any_case(Random& random, int ranks) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::AllReduce,     CollectiveKind::AllGather,
                                       CollectiveKind::ReduceScatter, CollectiveKind::Broadcast,
                                       CollectiveKind::Scatter,       CollectiveKind::AllToAll};
  Case one;
  Collective& c = one.call;
  c.kind = kKinds[any(random, 5)];
  c.dtype = any(random, 1) == 0 ? DType::F32 : DType::BF16;
  c.reduce = any(random, 1) == 0 ? Reduce::Sum : Reduce::Avg;
  c.root = static_cast<int>(any(random, ranks - 1));
  const std::int64_t scale = any(random, 3) == 0 ? 100 : 8;
  c.outer = any(random, 2) == 0 ? 1 + any(random, 3) : 1;
  c.inner = 1 + any(random, scale);
  one.kept = any(random, 3) != 0;
  if (c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::Broadcast) {
    c.extent = any(random, scale * scale);
    one.in_place = any(random, 1) == 0;
    return one;
  }
  c.counts = any_counts(random, ranks, scale);
  if (c.kind != CollectiveKind::AllToAll) return one;
  if (any(random, 1) == 0) {
    c.gather_first = any(random, 1) == 0;
    c.middle = 1 + any(random, 3);
    c.scatter_counts = any_counts(random, ranks, scale);
  } else {
    c.counts = nullptr;
    for (int r = 0; r < ranks; ++r) one.blocks.push_back(*any_counts(random, ranks, scale * scale));
  }
  return one;
}

// What `rank` asks for in it.
Collective call_of(const Case& one, int ranks, int rank) {
  Collective c = one.call;
  if (one.blocks.empty()) return c;
  std::vector<std::int64_t> recv;
  for (int r = 0; r < ranks; ++r)
    recv.push_back(one.blocks[static_cast<std::size_t>(r)][static_cast<std::size_t>(rank)]);
  c.send_counts =
      std::make_shared<const std::vector<std::int64_t>>(one.blocks[static_cast<std::size_t>(rank)]);
  c.recv_counts = std::make_shared<const std::vector<std::int64_t>>(recv);
  return c;
}

// Finite numbers of any size.
void fill(void* data, std::size_t bytes, DType dtype, std::uint64_t seed) {
  Random random(seed);
  std::uniform_real_distribution<float> number(-3, 3);
  for (std::size_t i = 0; i < bytes / size_of(dtype); ++i) {
    const float value = number(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::BF16) bits >>= 16;
    std::memcpy(static_cast<char*>(data) + i * size_of(dtype), &bits, size_of(dtype));
  }
}

using Bytes = std::vector<std::byte>;

// The results of some collectives, all in flight at once, on one rank.
std::vector<Bytes> results_of(Communicator& comm, int ranks, int rank, std::uint64_t seed) {
  const auto device = make_device(DeviceKind::Cpu, {0, 1});
  Random random(seed);
  std::vector<Work> works;
  std::vector<std::shared_ptr<Buffer>> results;
  std::vector<std::shared_ptr<Buffer>> held;
  for (int i = 0; i < 12; ++i) {
    const Case one = any_case(random, ranks);
    Collective c = call_of(one, ranks, rank);
    const std::size_t width = size_of(c.dtype);
    const auto sends = static_cast<std::size_t>(send_elements(c, ranks, rank)) * width;
    const auto recvs = static_cast<std::size_t>(recv_elements(c, ranks, rank)) * width;
    auto recv = device->make_buffer(std::max(sends, recvs) + 1);
    const bool in_place = one.in_place && c.kind == CollectiveKind::AllReduce;
    auto send = in_place ? recv : device->make_buffer(sends + 1);
    std::memset(recv->data(), 0, std::max(sends, recvs) + 1);
    fill(send->data(), sends, c.dtype, seed * 100 + static_cast<std::uint64_t>(i * 10 + rank));
    c.send = send->data();
    c.recv = recv->data();
    if (one.kept) c.keep_send = send, c.keep_recv = recv;
    works.push_back(comm.issue(c));
    held.push_back(send);
    results.push_back(recv);
    if (any(random, 2) == 0) works.back().wait();
  }
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    const auto* begin = static_cast<const std::byte*>(results[i]->data());
    all.emplace_back(begin, begin + results[i]->bytes());
  }
  return all;
}

std::vector<std::vector<Bytes>> results_on_processes(int ranks, int per_process,
                                                     std::uint64_t seed) {
  std::vector<std::vector<Bytes>> results(static_cast<std::size_t>(ranks));
  const auto failures =
      testing::on_processes(ranks, per_process, seed, [&](Communicator& comm, int rank) {
        results[static_cast<std::size_t>(rank)] = results_of(comm, ranks, rank, seed);
      });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "") << "seed " << seed;
  return results;
}

TEST(MpiTransfer, OfAnyCollectivesInFlightGivesTheBitsOfThreads) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (const auto& [ranks, per_process] :
         {std::pair(2, 1), std::pair(3, 1), std::pair(4, 1), std::pair(4, 2)}) {
      const auto threads = results_on_processes(ranks, ranks, seed);
      EXPECT_TRUE(results_on_processes(ranks, per_process, seed) == threads)
          << ranks << " ranks, " << per_process << " in each process, seed " << seed;
      if (HasFailure()) return;
    }
}

// What process 0 has sent for one all_reduce of 4 processes, notices of the start and the end apart.
testing::FakeMpi::Sent sent_for(std::int64_t elements) {
  FakeProcesses processes(4, 1, 1);
  std::vector<std::thread> threads;
  testing::FakeMpi::Sent sent;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      auto mine = processes.group_of(rank).communicator(rank);
      std::vector<float> data(static_cast<std::size_t>(elements), 1.0F);
      const testing::FakeMpi::Sent before = processes.mpi().sent(0);
      Collective c;
      c.kind = CollectiveKind::AllReduce;
      c.extent = elements;
      c.send = c.recv = data.data();
      mine->issue(c).wait();
      if (rank == 0) {
        const testing::FakeMpi::Sent after = processes.mpi().sent(0);
        sent = {after.messages - before.messages, after.bytes - before.bytes};
      }
      for (const float one : data) EXPECT_EQ(one, 4.0F);
      mine.reset();
      processes.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return sent;
}

TEST(MpiTransfer, WritesNothingMoreOnceAWaitHasFailed) {
  constexpr int kRanks = 3;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    FakeProcesses processes(kRanks, 1, seed);
    std::vector<std::vector<float>> data(kRanks, std::vector<float>(1 << 16, 1.0F));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        auto mine = processes.group_of(rank).communicator(rank);
        std::vector<float>& all = data[static_cast<std::size_t>(rank)];
        Collective c;
        c.kind = CollectiveKind::AllReduce;
        c.extent = static_cast<std::int64_t>(all.size());
        c.send = c.recv = all.data();
        bool failed = false;
        {
          Work work = mine->issue(c);
          for (std::uint64_t i = 0; rank == 0 && i < seed; ++i) (void)work.ready();
          if (rank == 0) mine->poison("disk full");
          try {
            work.wait();
          } catch (const Error&) {
            failed = true;
          }
        }
        if (failed) std::ranges::fill(all, 42.0F);
        mine.reset();
        processes.leave(rank);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // others go on meanwhile
        for (const float one : all) ASSERT_EQ(one, failed ? 42.0F : 3.0F) << seed;
      });
    for (std::thread& thread : threads) thread.join();
    if (HasFailure()) return;
  }
}

TEST(MpiTransfer, OfASmallBufferIsOneMessageToEachProcess) {
  EXPECT_EQ(sent_for(1024).messages, 3U);
}

TEST(MpiTransfer, OfALargeAllReduceSendsEachProcessOneShardOfTheDataAndOneOfTheSum) {
  const std::int64_t elements = 1 << 18;
  const testing::FakeMpi::Sent sent = sent_for(elements);
  EXPECT_EQ(sent.messages, 9U);
  EXPECT_GE(sent.bytes, 6 * elements);  // 4 bytes each, 2 * 3 / 4 of them
  EXPECT_LE(sent.bytes, 6 * elements + 4096);
}

}  // namespace
}  // namespace coshard
