#pragma once
// What one rank does for a collective: copies before, then rounds of NCCL calls and copies. A pure
// function of the collective; the calls of a round form one NCCL group, and the copies before, like
// those after a round, are independent of each other. Values; any thread.
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/device/peer_engine.h"

namespace coshard {

enum class NcclCallKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Send,
  Recv
};
const char* to_string(NcclCallKind kind);  // "ncclAllReduce", ...

struct NcclCall {
  NcclCallKind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  std::int64_t count = 0;  // elements, as NCCL counts them: per rank if parts are equal
  int peer = 0;            // or the root
  ncclDataType_t dtype{};
  ncclRedOp_t reduce{};
};

struct NcclRound {
  std::vector<NcclCall> calls;
  std::vector<StridedCopy> after;  // unpacks received data
};

struct NcclPlan {
  std::vector<StridedCopy> before;  // packs outgoing data; copies the local part unless NCCL does
  std::vector<NcclRound> rounds;
  // An all_gather by shards: round_of[rank] is the round after which its shard has arrived, -1 if
  // `before` copies it. Empty: all after the last round.
  std::vector<int> round_of;
};

// `all_to_all`: equal contiguous blocks use ncclAlltoAll. `scratch`: allocates device memory for
// staging, alive until the collective is complete.
NcclPlan plan_nccl(const Collective& collective, int ranks, int rank, bool all_to_all,
                   const std::function<void*(std::size_t)>& scratch);
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_reduction(Reduce reduce);

}  // namespace coshard
