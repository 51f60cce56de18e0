// Data between processes: however they travel, the bits are those of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <regex>
#include <thread>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>
#include "runtime/comm/collective.h"
#include "runtime/device/make_device.h"
#include "tests/runtime/comm/mpi/members.h"

namespace coshard {
namespace {

using testing::all_of;
using testing::FakeProcesses;
using testing::Members;
using testing::on_members;
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

// Enough that each process sums a shard.
Case large_all_reduce(Random& random, int) {
  constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F64};
  Case one;
  Collective& c = one.call;
  c.kind = CollectiveKind::AllReduce;
  c.dtype = kTypes[any(random, 2)];
  c.reduce = any(random, 1) == 0 ? Reduce::Sum : Reduce::Avg;
  c.extent = 16 * 1024 + any(random, 150'000);
  one.in_place = any(random, 1) == 0;
  one.kept = any(random, 1) == 0;
  return one;
}
using Generator = Case(Random&, int ranks);

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
    const double wide = value;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::BF16) bits >>= 16;
    const void* stored = dtype == DType::F64 ? static_cast<const void*>(&wide) : &bits;
    std::memcpy(static_cast<char*>(data) + i * size_of(dtype), stored, size_of(dtype));
  }
}

using Bytes = std::vector<std::byte>;

// The results of some collectives, all in flight at once, on one rank.
std::vector<Bytes> results_of(Communicator& comm, Generator& generator, std::uint64_t seed) {
  const int ranks = comm.size(), rank = comm.rank();
  const auto device = make_device(DeviceKind::Cpu, {0, 1});
  Random random(seed);
  std::vector<Work> works;
  std::vector<std::shared_ptr<Buffer>> results;
  std::vector<std::shared_ptr<Buffer>> held;
  for (int i = 0; i < 12; ++i) {
    const Case one = generator(random, ranks);
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

std::vector<std::vector<Bytes>> results_on(const Members& members, Generator& generator,
                                           std::uint64_t seed) {
  std::vector<std::vector<Bytes>> results(members.ranks.size());
  on_members(members, seed, [&](Communicator& comm, FakeProcesses&) {
    results[static_cast<std::size_t>(comm.rank())] = results_of(comm, generator, seed);
  });
  return results;
}

void expect_bits_of_threads(Members members, Generator& generator, std::uint64_t seed) {
  const auto results = results_on(members, generator, seed);
  const int per_process = std::exchange(members.per_process, members.world);
  EXPECT_TRUE(results_on(members, generator, seed) == results)
      << members.ranks.size() << " of " << members.world << " ranks, " << per_process
      << " in each process, seed " << seed;
}

// Each takes thirty times as long with a sanitizer.
constexpr std::uint64_t kDraws = COSHARD_ASAN || COSHARD_TSAN ? 2 : 8;

TEST(MpiTransfer, OfAnyCollectivesInFlightGivesTheBitsOfThreads) {
  for (std::uint64_t seed = 1; seed <= kDraws && !HasFailure(); ++seed)
    for (const auto& [ranks, per_process] :
         {std::pair(2, 1), std::pair(3, 1), std::pair(4, 1), std::pair(4, 2), std::pair(6, 3)})
      expect_bits_of_threads(all_of(ranks, per_process), any_case, seed);
}

TEST(MpiTransfer, OfLargeAllReducesGivesTheBitsOfThreadsHoweverRanksAreSpread) {
  const Members uneven{{0, 1, 2, 4}, 6, 3}, mixed{{5, 0, 3, 1, 4}, 6, 2}, lone{{3, 1, 0}, 4, 2};
  for (std::uint64_t seed = 1; seed <= kDraws / 2 && !HasFailure(); ++seed)
    for (const Members& members : {all_of(3, 1), all_of(4, 2), all_of(8, 4), uneven, mixed, lone})
      expect_bits_of_threads(members, large_all_reduce, seed);
}

// Rank 0 fails sooner or later; the others fail, or have the sum.
void fail_in_all_reduce(int ranks, int per_process, std::uint64_t seed) {
  FakeProcesses processes(ranks, per_process, seed);
  std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks),
                                       std::vector<float>(1 << 16, 1.0F));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
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
      const float expected = failed ? 42.0F : static_cast<float>(ranks);
      for (const float one : all) ASSERT_EQ(one, expected) << seed;
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(MpiTransfer, WritesNothingMoreOnceAWaitHasFailed) {
  for (std::uint64_t seed = 1; seed <= 25 && !HasFailure(); ++seed) {
    fail_in_all_reduce(3, 1, seed);
    fail_in_all_reduce(4, 2, 2 * seed);
  }
}

// What rank 0 waits for at the deadline when process 1 falls silent after so many messages.
std::string timeout_after(CollectiveKind kind, int ranks, std::int64_t elements, int messages,
                          std::int64_t timeout_ns) {
  FakeProcesses processes(ranks, 1, 7, "tp", {{1, messages}});
  std::string what;
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto mine = processes.group_of(rank).communicator(rank);
      mine->set_timeout(rank == 0 ? timeout_ns : 60'000'000'000);
      std::vector<float> send(static_cast<std::size_t>(elements), 1.0F), recv(send);
      Collective c;
      c.kind = kind;
      c.extent = elements;
      c.send = send.data(), c.recv = recv.data();
      together.arrive_and_wait();
      try {
        mine->issue(c).wait();
      } catch (const Error& error) {
        if (rank == 0) what = error.what();
      }
      if (rank == 0) mine->poison("over");  // for the others, who may wait for process 1
      mine.reset();
      processes.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return what;
}

// Not a deadline so short that those who are alive had no time.
std::string timeout_after(CollectiveKind kind, int ranks, std::int64_t elements, int messages,
                          const std::regex& expected) {
  std::string what;
  for (std::int64_t ns = 40'000'000; ns < 5'000'000'000; ns *= 4) {
    what = timeout_after(kind, ranks, elements, messages, ns);
    if (what.empty() || std::regex_search(what, expected)) break;
  }
  return what;
}

TEST(MpiTransfer, ThatIsNotOverAtTheDeadlineNamesWhomItWaitsFor) {
  const std::regex named("missing: (the data of |the sum of )?1 \\(");
  for (const auto kind :
       {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
    for (const std::int64_t elements : {300, 300'000})
      for (int messages = 0; messages < 6; ++messages) {
        const std::string what = timeout_after(kind, 3, elements, messages, named);
        if (what.empty() && messages > 0) continue;  // it had sent all
        EXPECT_TRUE(std::regex_search(what, named))
            << messages << " of " << elements << ": " << what;
      }
}

// Its notices and its data, each to 7 others, and then no sum.
TEST(MpiTransfer, ThatHasAllDataAtTheDeadlineNamesWhoseSumIsMissing) {
  std::string what;
  for (int messages = 14; messages < 24; ++messages) {
    what = timeout_after(CollectiveKind::AllReduce, 8, 8192, messages, 200'000'000);
    if (what.find("missing: the sum of 1 (") != std::string::npos) return;
  }
  FAIL() << what;
}

}  // namespace
}  // namespace coshard
