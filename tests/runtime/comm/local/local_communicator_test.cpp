// Every collective against a plain computation: dtypes, numbers of ranks, uneven and empty cuts,
// small (done at once) and large (cut into units).
#include <algorithm>
#include <cstring>

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

const int kRanks[] = {1, 2, 3, 4, 8};

// Small whole numbers, exact in bf16, also when eight are summed.
template <class T>
T value_of(std::int64_t seed) {
  const auto scrambled = static_cast<std::uint64_t>(seed + 1) * 0x9e3779b97f4a7c15U >> 40;
  if constexpr (std::is_same_v<T, bool>) return scrambled % 2 == 0;
  return static_cast<T>(static_cast<float>(static_cast<int>(scrambled % 5) - 2));
}

// Cuts of `total` positions: even where it divides, uneven, and with empty ranks.
std::vector<Counts> cuts(int ranks, std::int64_t total) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> uneven(n), first(n, 0), chunked(n, 0);
  std::int64_t left = total;
  for (std::size_t r = 0; r + 1 < n; ++r)
    left -= uneven[r] = left * static_cast<std::int64_t>(r % 3) / 4;
  uneven[n - 1] = left;
  first[0] = total;
  left = total;  // torch.chunk
  for (std::size_t r = 0; r < n; ++r)
    left -= chunked[r] = std::min(left, (total + ranks - 1) / ranks);
  return {counts_of(uneven), counts_of(first), counts_of(chunked)};
}

std::int64_t offset_of(const Counts& counts, int rank) {
  return std::accumulate(counts->begin(), counts->begin() + rank, std::int64_t{0});
}

template <class T>
T reduced(Reduce reduce, int ranks, std::int64_t index) {
  if constexpr (std::is_same_v<T, bool>) {
    bool any = false, all = true;
    for (int r = 0; r < ranks; ++r) {
      any = any || value_of<bool>(index * ranks + r);
      all = all && value_of<bool>(index * ranks + r);
    }
    return reduce == Reduce::Max ? any : all;
  } else {
    using A = std::conditional_t<is_short_float<T>, float, T>;
    A sum = static_cast<A>(value_of<T>(index * ranks));
    for (int r = 1; r < ranks; ++r) {
      const A next = static_cast<A>(value_of<T>(index * ranks + r));
      switch (reduce) {
        case Reduce::Min: sum = std::min(sum, next); break;
        case Reduce::Max: sum = std::max(sum, next); break;
        case Reduce::Product: sum = sum * next; break;
        default: sum = sum + next;
      }
    }
    return static_cast<T>(reduce == Reduce::Avg ? sum / static_cast<A>(ranks) : sum);
  }
}

template <class T>
std::vector<Reduce> reductions() {
  if constexpr (std::is_same_v<T, bool>) return {Reduce::Min, Reduce::Max};
  return {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product};
}

template <class T>
class CollectivesOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, bool>;
TYPED_TEST_SUITE(CollectivesOf, Types);

TYPED_TEST(CollectivesOf, AllReduceGivesEveryRankTheReduction) {
  using T = TypeParam;
  for (int ranks : kRanks)
    for (Reduce reduce : reductions<T>())
      for (std::int64_t count : {0, 1, 1000, 100'001})
        for (bool in_place : {false, true}) {
          if (count > 1000 && (ranks > 3 || reduce >= Reduce::Min)) continue;  // time
          on_ranks(ranks, [&](Communicator& comm, int rank) {
            Array<T> send(count), recv(count);
            for (std::int64_t i = 0; i < count; ++i) send[i] = value_of<T>(i * ranks + rank);
            Collective c;
            c.kind = CollectiveKind::AllReduce;
            c.dtype = dtype_of<T>;
            c.reduce = reduce;
            c.extent = count;
            c.send = send.put();
            c.recv = in_place ? send.data() : recv.put();
            comm.issue(c).wait();
            Array<T>& result = (in_place ? send : recv).get();
            for (std::int64_t i = 0; i < count; ++i)
              ASSERT_EQ(result[i], reduced<T>(reduce, ranks, i)) << i;
          });
        }
}

struct Geometry {
  std::int64_t outer, extent, inner;
};
const Geometry kGeometries[] = {{1, 24, 1}, {3, 24, 5}, {2, 0, 3}, {1, 5, 7}, {2, 1000, 40}};

TYPED_TEST(CollectivesOf, AllGatherPutsTheShardsOfTheCutDimensionTogether) {
  using T = TypeParam;
  for (int ranks : kRanks)
    for (const Geometry& g : kGeometries)
      for (const Counts& counts : cuts(ranks, g.extent)) {
        on_ranks(ranks, [&](Communicator& comm, int rank) {
          const std::int64_t mine = (*counts)[static_cast<std::size_t>(rank)],
                             offset = offset_of(counts, rank);
          Array<T> send(g.outer * mine * g.inner), recv(g.outer * g.extent * g.inner);
          for (std::int64_t i = 0; i < send.size(); ++i) {
            const std::int64_t o = i / (mine * g.inner), rest = i % (mine * g.inner);
            send[i] = value_of<T>((o * g.extent + offset) * g.inner + rest);
          }
          Collective c;
          c.kind = CollectiveKind::AllGather;
          c.dtype = dtype_of<T>;
          c.outer = g.outer;
          c.inner = g.inner;
          c.counts = counts;
          c.send = send.put();
          c.recv = recv.put();
          comm.issue(c).wait();
          recv.get();
          for (std::int64_t i = 0; i < recv.size(); ++i) ASSERT_EQ(recv[i], value_of<T>(i)) << i;
        });
      }
}

TYPED_TEST(CollectivesOf, ReduceScatterGivesEachRankItsCutOfTheReduction) {
  using T = TypeParam;
  const Reduce reduce = std::is_same_v<T, bool> ? Reduce::Max : Reduce::Sum;
  for (int ranks : kRanks)
    for (const Geometry& g : kGeometries)
      for (const Counts& counts : cuts(ranks, g.extent)) {
        on_ranks(ranks, [&](Communicator& comm, int rank) {
          const std::int64_t mine = (*counts)[static_cast<std::size_t>(rank)],
                             offset = offset_of(counts, rank);
          Array<T> send(g.outer * g.extent * g.inner), recv(g.outer * mine * g.inner);
          for (std::int64_t i = 0; i < send.size(); ++i) send[i] = value_of<T>(i * ranks + rank);
          Collective c;
          c.kind = CollectiveKind::ReduceScatter;
          c.dtype = dtype_of<T>;
          c.reduce = reduce;
          c.outer = g.outer;
          c.inner = g.inner;
          c.counts = counts;
          c.send = send.put();
          c.recv = recv.put();
          comm.issue(c).wait();
          recv.get();
          for (std::int64_t i = 0; i < recv.size(); ++i) {
            const std::int64_t o = i / (mine * g.inner), rest = i % (mine * g.inner);
            const std::int64_t whole = (o * g.extent + offset) * g.inner + rest;
            ASSERT_EQ(recv[i], reduced<T>(reduce, ranks, whole)) << i;
          }
        });
      }
}

TYPED_TEST(CollectivesOf, BroadcastAndScatterGiveWhatTheRootHas) {
  using T = TypeParam;
  for (int ranks : kRanks)
    for (const Geometry& g : kGeometries)
      for (const Counts& counts : cuts(ranks, g.extent)) {
        on_ranks(ranks, [&](Communicator& comm, int rank) {
          const std::int64_t mine = (*counts)[static_cast<std::size_t>(rank)],
                             offset = offset_of(counts, rank);
          Array<T> whole(g.outer * g.extent * g.inner), cut(g.outer * mine * g.inner);
          Collective c;
          c.kind = CollectiveKind::Scatter;
          c.dtype = dtype_of<T>;
          c.root = ranks - 1;
          c.outer = g.outer;
          c.extent = g.extent;
          c.inner = g.inner;
          c.counts = counts;
          if (rank == c.root) {
            for (std::int64_t i = 0; i < whole.size(); ++i) whole[i] = value_of<T>(i);
            c.send = whole.put();
          }
          c.recv = cut.put();
          comm.issue(c).wait();
          cut.get();
          for (std::int64_t i = 0; i < cut.size(); ++i) {
            const std::int64_t o = i / (mine * g.inner), rest = i % (mine * g.inner);
            ASSERT_EQ(cut[i], value_of<T>((o * g.extent + offset) * g.inner + rest)) << i;
          }
          c.kind = CollectiveKind::Broadcast;
          c.recv = whole.data();
          comm.issue(c).wait();
          whole.get();
          for (std::int64_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], value_of<T>(i)) << i;
        });
      }
}

// The whole tensor is [outer, first, middle, second, inner]; its element i has the value
// value_of(i).
template <class T>
void transpose_shards(int ranks, bool gather_first, std::int64_t inner, const Counts& a,
                      const Counts& b) {
  on_ranks(ranks, [&](Communicator& comm, int rank) {
    const std::int64_t outer = 2, middle = 3;
    const auto me = static_cast<std::size_t>(rank);
    const std::int64_t all_a = offset_of(a, ranks), all_b = offset_of(b, ranks);
    // Element of a tensor whose a runs over [a0, a0 + an) and b over [b0, b0 + bn).
    const auto value = [&](std::int64_t i, std::int64_t a0, std::int64_t an, std::int64_t b0,
                           std::int64_t bn) {
      const std::int64_t n1 = gather_first ? an : bn, n2 = gather_first ? bn : an;
      const std::int64_t in = i % inner, s = i / inner % n2, m = i / inner / n2 % middle;
      const std::int64_t f = i / inner / n2 / middle % n1, o = i / inner / n2 / middle / n1;
      const std::int64_t whole1 = gather_first ? all_a : all_b,
                         whole2 = gather_first ? all_b : all_a;
      const std::int64_t at1 = f + (gather_first ? a0 : b0), at2 = s + (gather_first ? b0 : a0);
      return value_of<T>((((o * whole1 + at1) * middle + m) * whole2 + at2) * inner + in);
    };
    Array<T> send(outer * (*a)[me] * middle * all_b * inner),
        recv(outer * all_a * middle * (*b)[me] * inner);
    for (std::int64_t i = 0; i < send.size(); ++i)
      send[i] = value(i, offset_of(a, rank), (*a)[me], 0, all_b);
    Collective c;
    c.kind = CollectiveKind::AllToAll;
    c.dtype = dtype_of<T>;
    c.gather_first = gather_first;
    c.outer = outer;
    c.middle = middle;
    c.inner = inner;
    c.counts = a;
    c.scatter_counts = b;
    c.send = send.put();
    c.recv = recv.put();
    comm.issue(c).wait();
    recv.get();
    for (std::int64_t i = 0; i < recv.size(); ++i)
      ASSERT_EQ(recv[i], value(i, 0, all_a, offset_of(b, rank), (*b)[me])) << i;
  });
}

TYPED_TEST(CollectivesOf, AllToAllTurnsOneShardedDimensionIntoAnother) {
  using T = TypeParam;
  for (int ranks : kRanks)
    for (bool gather_first : {true, false})
      for (std::size_t cut = 0; cut < 3; ++cut) {
        transpose_shards<T>(ranks, gather_first, 5, cuts(ranks, 9)[cut], cuts(ranks, 16)[2 - cut]);
        if (ranks == 3)
          transpose_shards<T>(ranks, gather_first, 300, cuts(ranks, 9)[cut], cuts(ranks, 16)[cut]);
      }
}

TYPED_TEST(CollectivesOf, FlatAllToAllSendsEachPeerItsBlock) {
  using T = TypeParam;
  for (int ranks : kRanks) {
    // From s to d go (s + 2 d) % 4 blocks of 50 elements: uneven, and none for some.
    const auto count = [](int s, int d) { return std::int64_t{(s + 2 * d) % 4} * 50; };
    on_ranks(ranks, [&](Communicator& comm, int rank) {
      std::vector<std::int64_t> sends, recvs;
      for (int r = 0; r < ranks; ++r) {
        sends.push_back(count(rank, r));
        recvs.push_back(count(r, rank));
      }
      Array<T> send(std::accumulate(sends.begin(), sends.end(), std::int64_t{0}));
      Array<T> recv(std::accumulate(recvs.begin(), recvs.end(), std::int64_t{0}));
      std::int64_t at = 0;
      for (int d = 0; d < ranks; ++d)
        for (std::int64_t i = 0; i < count(rank, d); ++i)
          send[at++] = value_of<T>((rank * 10 + d) * 1000 + i);
      Collective c;
      c.kind = CollectiveKind::AllToAll;
      c.dtype = dtype_of<T>;
      c.send_counts = counts_of(sends);
      c.recv_counts = counts_of(recvs);
      c.send = send.put();
      c.recv = recv.put();
      comm.issue(c).wait();
      recv.get();
      at = 0;
      for (int s = 0; s < ranks; ++s)
        for (std::int64_t i = 0; i < count(s, rank); ++i)
          ASSERT_EQ(recv[at++], value_of<T>((s * 10 + rank) * 1000 + i));
    });
  }
}

TEST(Collectives, NullCountsCutIntoEqualParts) {
  on_ranks(4, [](Communicator& comm, int rank) {
    Array<std::int32_t> send(3UL, rank), recv(12UL);
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.dtype = DType::I32;
    c.extent = 12;
    c.send = send.put();
    c.recv = recv.put();
    comm.issue(c).wait();
    recv.get();
    for (int i = 0; i < 12; ++i) EXPECT_EQ(recv[i], i / 3);
  });
}

TEST(Collectives, AllReduceHasTheSameBitsOnAllRanksAndInEveryRun) {
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 3; ++run) {
    std::vector<std::vector<float>> of_rank(3, std::vector<float>(200'000));
    on_ranks(3, [&](Communicator& comm, int rank) {
      std::vector<float>& kept = of_rank[static_cast<std::size_t>(rank)];
      Floats mine(kept.size());
      for (std::size_t i = 0; i < kept.size(); ++i)
        mine[i] = 1.0F / static_cast<float>(i * 3 + static_cast<std::size_t>(rank) + 1);
      comm.issue(sum_of(mine)).wait();
      std::copy_n(&mine.get()[0], kept.size(), kept.begin());
    });
    results.insert(results.end(), of_rank.begin(), of_rank.end());
  }
  for (const auto& result : results)
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
}

TEST(Collectives, ABadArgumentIsRefusedAndTakesNoWork) {
  on_ranks(1, [](Communicator& comm, int) {
    Array<bool> flag(1UL);
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.dtype = DType::Bool;
    c.extent = 1;
    c.send = c.recv = flag.data();
    EXPECT_THROW((void)comm.issue(c), Error);
    c.kind = CollectiveKind::AllGather;
    c.counts = counts_of({1, 1});
    EXPECT_THROW((void)comm.issue(c), Error);
    c.counts = counts_of({-1});
    EXPECT_THROW((void)comm.issue(c), Error);
    c.counts = counts_of({1});
    c.send = nullptr;
    EXPECT_THROW((void)comm.issue(c), Error);
    c.kind = CollectiveKind::Broadcast;
    c.root = 1;
    EXPECT_THROW((void)comm.issue(c), Error);
    EXPECT_EQ(comm.issued(), 0U);
  });
}

TEST(Collectives, ASubgroupFollowsTheOrderOfItsRanksAndNobodyElseTakesPart) {
  on_ranks(5, [](Communicator& comm, int rank) {
    if (rank == 4) return;
    const std::vector<int> mine{rank % 2 + 2, rank % 2};
    const auto half = comm.subgroup(mine, "dp");
    ASSERT_EQ(half->size(), 2);
    EXPECT_EQ(half->name(), "dp");
    EXPECT_EQ(half->rank(), rank < 2 ? 1 : 0);
    Floats data(1UL, static_cast<float>(rank));
    half->issue(sum_of(data)).wait();
    EXPECT_EQ(data.get()[0], rank % 2 == 0 ? 2.0F : 4.0F);
    EXPECT_EQ(half->issued(), 1U);
    EXPECT_EQ(comm.issued(), 0U);
    const std::vector<int> others{4, (rank + 1) % 4};
    EXPECT_THROW(comm.subgroup(others, "dp"), Error);
  });
}

TEST(Collectives, TwoSubgroupsOfTheSameRanksAreTwoCommunicators) {
  on_ranks(2, [](Communicator& comm, int rank) {
    const std::vector<int> both{0, 1};
    const auto first = comm.subgroup(both, "a");
    const auto second = comm.subgroup(both, "b");
    Floats one(1UL, static_cast<float>(rank)), two(1UL, 1.0F);
    const Work later = second->issue(sum_of(two));
    first->issue(sum_of(one)).wait();
    later.wait();
    EXPECT_EQ(one.get()[0], 1.0F);
    EXPECT_EQ(two.get()[0], 2.0F);
  });
}

}  // namespace
}  // namespace coshard::testing
