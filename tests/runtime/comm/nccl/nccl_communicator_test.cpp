// Every collective, dtype and reduction against the same one through host memory; uneven and empty
// cuts, strided pieces, messages, arrival in parts, windows.
#include <cstring>

#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

constexpr DType kTypes[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                            DType::I64, DType::I32, DType::Bool};

Counts nccl_counts(std::vector<std::int64_t> counts) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

// Small whole numbers, exact in every type.
std::vector<char> values_of(DType dtype, std::int64_t count, int rank) {
  std::vector<char> bytes(static_cast<std::size_t>(count) * size_of(dtype) + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const int small = static_cast<int>((i * 7 + rank * 13 + i / 5) % 5) - 2;
    char* to = bytes.data() + static_cast<std::size_t>(i) * size_of(dtype);
    const auto put = [to](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (dtype) {
      case DType::F32: put(static_cast<float>(small)); break;
      case DType::F64: put(static_cast<double>(small)); break;
      case DType::BF16: put(BFloat16(static_cast<float>(small))); break;
      case DType::F16: put(Float16(static_cast<float>(small))); break;
      case DType::I64: put(static_cast<std::int64_t>(small)); break;
      case DType::I32: put(static_cast<std::int32_t>(small)); break;
      case DType::Bool: put(small > 0); break;
      case DType::F8E4M3:
      case DType::F8E5M2: break;  // not reduced
    }
  }
  return bytes;
}

// Issues `c` through host memory and by NCCL, and compares what is received.
void same_as_on_host(NcclRank& mine, Collective c) {
  const int n = mine.comm->size();
  const std::int64_t sends = send_elements(c, n, mine.rank);
  const std::int64_t receives = recv_elements(c, n, mine.rank);
  const std::size_t send_bytes = static_cast<std::size_t>(sends) * size_of(c.dtype);
  const std::size_t recv_bytes = static_cast<std::size_t>(receives) * size_of(c.dtype);
  const std::vector<char> send = values_of(c.dtype, sends, mine.rank);
  std::vector<char> expected(recv_bytes + 1), got(recv_bytes + 1);
  Collective on_host = c;
  on_host.send = send.data();
  on_host.recv = expected.data();
  mine.host->issue(on_host).wait();

  auto from = mine.device->make_buffer(send_bytes), to = mine.device->make_buffer(recv_bytes);
  if (send_bytes > 0) mine.device->upload(from->data(), send.data(), send_bytes);
  c.send = from->data();
  c.recv = to->data();
  c.keep_send = from;
  c.keep_recv = to;
  const Work work = mine.comm->issue(c);
  from.reset();
  work.wait();
  if (recv_bytes > 0) mine.device->download(got.data(), to->data(), recv_bytes);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), recv_bytes), 0)
      << describe(c, n) << " on rank " << mine.rank;
}

TEST(NcclCollectives, EveryReductionOfEveryTypeIsWhatItIsOnTheHost) {
  for (int ranks : {1, 2, 3}) {
    on_nccl_ranks({.ranks = ranks}, [](NcclRank& mine) {
      for (DType dtype : kTypes)
        for (Reduce reduce :
             {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product}) {
          if (dtype == DType::Bool && reduce != Reduce::Min && reduce != Reduce::Max) continue;
          Collective c;
          c.dtype = dtype;
          c.reduce = reduce;
          c.kind = CollectiveKind::AllReduce;
          for (std::int64_t count : {0, 1, 37}) {
            c.extent = count;
            same_as_on_host(mine, c);
          }
          c.kind = CollectiveKind::ReduceScatter;
          c.extent = 6;
          c.outer = 2;
          c.inner = 3;
          same_as_on_host(mine, c);
        }
    });
  }
}

// Cuts of 12 positions: equal, uneven, all at one rank, PyTorch's chunks, and these backwards.
std::vector<Counts> nccl_cuts(int ranks) {
  std::vector<std::int64_t> uneven(static_cast<std::size_t>(ranks)), first = uneven;
  std::int64_t left = 12;
  for (std::size_t r = 0; r + 1 < uneven.size(); ++r)
    left -= uneven[r] = std::min<std::int64_t>(left, static_cast<std::int64_t>(r % 3) * 2);
  uneven.back() = left;
  first[0] = 12;
  std::vector<std::int64_t> chunks(uneven.size(), 0);
  const std::int64_t most = std::min(12, 12 / ranks + 1);
  for (std::size_t r = 0, from = 0; r < chunks.size(); ++r, from += static_cast<std::size_t>(most))
    chunks[r] = std::clamp<std::int64_t>(12 - static_cast<std::int64_t>(from), 0, most);
  const std::vector<std::int64_t> backwards(chunks.rbegin(), chunks.rend());
  return {nullptr, nccl_counts(uneven), nccl_counts(first), nccl_counts(chunks),
          nccl_counts(backwards)};
}

TEST(NcclCollectives, CutsThatAreUnevenEmptyOrStridedArriveInTheirPlaces) {
  for (int ranks : {1, 2, 3, 4})
    for (bool by_shards : {false, true}) {
      const NcclSetting setting{.ranks = ranks};
      on_nccl_ranks(setting, [ranks, by_shards](NcclRank& mine) {
        for (const Counts& counts : nccl_cuts(ranks))
          for (std::int64_t outer : {1, 3})
            for (DType dtype : kTypes) {
              Collective c;
              c.dtype = dtype;
              c.extent = 12;
              c.outer = outer;
              c.inner = 2;
              c.counts = counts;
              c.root = ranks - 1;
              c.reduce = dtype == DType::Bool ? Reduce::Max : Reduce::Sum;
              for (CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                          CollectiveKind::Scatter, CollectiveKind::Broadcast}) {
                c.kind = kind;
                c.by_shards = by_shards && kind == CollectiveKind::AllGather;
                same_as_on_host(mine, c);
              }
            }
      });
    }
}

TEST(NcclCollectives, AllToAllTurnsOneCutDimensionIntoAnother) {
  for (int ranks : {1, 2, 3})
    for (bool copy_engine : {false, true}) {
      NcclSetting setting{.ranks = ranks};
      setting.options.copy_engine = copy_engine;
      on_nccl_ranks(setting, [ranks](NcclRank& mine) {
        for (const Counts& a : nccl_cuts(ranks))
          for (const Counts& b : nccl_cuts(ranks))
            for (bool gather_first : {true, false})
              for (std::int64_t outer : {1, 2}) {
                Collective c;
                c.kind = CollectiveKind::AllToAll;
                c.extent = c.scatter_extent = 12;
                c.counts = a;
                c.scatter_counts = b;
                c.gather_first = gather_first;
                c.outer = outer;
                c.middle = outer;
                c.inner = 2;
                same_as_on_host(mine, c);
              }
      });
    }
}

TEST(NcclCollectives, AFlatAllToAllSendsEachPeerItsBlock) {
  on_nccl_ranks({.ranks = 4}, [](NcclRank& mine) {
    for (DType dtype : kTypes) {
      std::vector<std::int64_t> sends, receives;
      for (int r = 0; r < 4; ++r) {
        sends.push_back((mine.rank + 2 * r) % 4 * 5);
        receives.push_back((r + 2 * mine.rank) % 4 * 5);
      }
      Collective c;
      c.kind = CollectiveKind::AllToAll;
      c.dtype = dtype;
      c.send_counts = nccl_counts(sends);
      c.recv_counts = nccl_counts(receives);
      same_as_on_host(mine, c);
    }
  });
}

TEST(NcclCollectives, RanksThatBothSendFirstDoNotBlockEachOther) {
  on_nccl_ranks({.ranks = 3}, [](NcclRank& mine) {
    for (int round = 0; round < 4; ++round) {
      const NcclNumbers out(mine, std::vector<float>(9, static_cast<float>(mine.rank)));
      const NcclNumbers in(mine, std::vector<float>(9, -1.0F));
      Collective c;
      c.kind = CollectiveKind::Send;
      c.extent = 9;
      c.root = (mine.rank + 1) % 3;
      c.send = out.buffer->data();
      const Work sent = mine.comm->issue(c);
      c.kind = CollectiveKind::Recv;
      c.root = (mine.rank + 2) % 3;
      c.recv = in.buffer->data();
      const Work received = mine.comm->issue(c);
      received.wait();
      sent.wait();
      EXPECT_EQ(in.get(), std::vector<float>(9, static_cast<float>((mine.rank + 2) % 3)));
    }
    EXPECT_EQ(mine.comm->issued(), 0U);
  });
}

TEST(NcclCollectives, ABarrierAndAnInPlaceSumWork) {
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    mine.comm->issue(Collective()).wait();
    const NcclNumbers numbers(mine, {1, 2, 3});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(numbers.get(), (std::vector<float>{2, 4, 6}));
    EXPECT_EQ(mine.comm->issued(), 2U);
  });
}

// How many kernels four ranks launch together.
std::uint64_t launches_of(const Collective& c) {
  std::uint64_t launches = 0;
  on_nccl_ranks({.ranks = 4}, [&](NcclRank& mine) {
    const auto meet = [&] { mine.host->issue(Collective()).wait(); };
    meet();
    if (mine.rank == 0) FakeDriver::get().reset_counts();
    meet();
    take_fake_nccl_trace(mine.rank);
    same_as_on_host(mine, c);
    meet();
    if (mine.rank == 0) launches = FakeDriver::get().calls("Launch");
    EXPECT_EQ(take_fake_nccl_trace(mine.rank),
              str_cat("nccl", c.kind == CollectiveKind::AllGather ? "AllGather" : "ReduceScatter"));
    meet();
  });
  return launches;
}

TEST(NcclCollectives, StridedShardsAreCopiedByOneKernelPerRank) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.outer = 3;
  c.extent = 8;
  EXPECT_EQ(launches_of(c), 4U);
  c.kind = CollectiveKind::ReduceScatter;
  EXPECT_EQ(launches_of(c), 4U);
  c.outer = 1;
  EXPECT_EQ(launches_of(c), 0U);
}

TEST(NcclCollectives, UnevenShardsAreOneCallAndOneKernelPerRank) {
  Collective c;
  c.extent = 10;
  c.counts = nccl_counts({3, 3, 3, 1});
  for (const std::int64_t outer : {1, 2}) {
    c.outer = outer;
    c.kind = CollectiveKind::AllGather;
    EXPECT_EQ(launches_of(c), 4U);
    // The last rank unpacks its sum: rows unless they lie side by side.
    c.kind = CollectiveKind::ReduceScatter;
    EXPECT_EQ(launches_of(c), outer == 1 ? 4U : 5U);
  }
}

Collective gather_of(const NcclNumbers& from, const NcclNumbers& to) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = static_cast<std::int64_t>(to.count);
  c.send = from.buffer->data();
  c.recv = to.buffer->data();
  c.keep_send = from.buffer;
  c.keep_recv = to.buffer;
  return c;
}

TEST(NcclCollectives, AnAllGatherByShardsIsThereOneByOne) {
  const NcclSetting setting{.ranks = 3};
  on_nccl_ranks(setting, [](NcclRank& mine) {
    take_fake_nccl_trace(mine.rank);
    const NcclNumbers from(mine, std::vector<float>(4, static_cast<float>(mine.rank + 1)));
    const NcclNumbers to(mine, std::vector<float>(12, 0.0F));
    Collective gather = gather_of(from, to);
    gather.by_shards = true;
    const Work work = mine.comm->issue(gather);
    EXPECT_THROW(work.state()->wait(3), Error);
    for (int k = 0; k < 3; ++k) {
      const int part = (mine.rank + k) % 3;
      work.state()->wait(part);
      // What the compute stream does now sees this part.
      std::vector<float> shard(4);
      mine.device->download(shard.data(), static_cast<float*>(to.buffer->data()) + 4 * part, 16);
      EXPECT_EQ(shard, std::vector<float>(4, static_cast<float>(part + 1)));
      EXPECT_TRUE(work.state()->ready(part) || k > 0);
    }
    work.wait();
    EXPECT_EQ(take_fake_nccl_trace(mine.rank), "ncclSend+ncclRecv,ncclSend+ncclRecv");
  });
}

TEST(NcclCollectives, UnaskedAnAllGatherIsOneCall) {
  const NcclSetting setting{.ranks = 3};
  on_nccl_ranks(setting, [](NcclRank& mine) {
    take_fake_nccl_trace(mine.rank);
    const NcclNumbers from(mine, {1, 2}), to(mine, std::vector<float>(6, 0.0F));
    const Work work = mine.comm->issue(gather_of(from, to));
    work.state()->wait(1);
    work.wait();
    EXPECT_EQ(take_fake_nccl_trace(mine.rank), "ncclAllGather");
  });
}

TEST(NcclCollectives, BuffersInWindowsGoByTheCopyEnginesAndTheWorkHandleSaysSo) {
  NcclSetting setting{.ranks = 2};
  setting.options.copy_engine = true;
  on_nccl_ranks(setting, [](NcclRank& mine) {
    const auto window = mine.comm->symmetric_buffer(4096 + 40);
    auto* recv = static_cast<float*>(window->data());
    const float number = static_cast<float>(mine.rank + 1);
    mine.device->upload(recv + 100, &number, sizeof number);
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.extent = 2;
    c.send = recv + 100;
    c.recv = recv;
    c.keep_recv = window;
    const Work work = mine.comm->issue(c);
    work.wait();
    std::vector<float> got(2);
    mine.device->download(got.data(), recv, 8);
    EXPECT_EQ(got, (std::vector<float>{1, 2}));
    EXPECT_EQ(nccl_path(work), "copy engine");

    const NcclNumbers elsewhere(mine, {1, 1});
    c.recv = elsewhere.buffer->data();
    c.keep_recv = elsewhere.buffer;
    const Work other = mine.comm->issue(c);
    other.wait();
    EXPECT_EQ(nccl_path(other), "SM kernel requested");
    const Work sum = mine.comm->issue(nccl_sum_of(elsewhere));
    sum.wait();
    EXPECT_EQ(nccl_path(sum), "SM kernel requested");
    EXPECT_EQ(elsewhere.get(), (std::vector<float>{2, 4}));
  });
}

}  // namespace
}  // namespace coshard::testing
