#pragma once
// What the fake NCCL knows, and how calls of several ranks become work on their streams. Everything
// under the driver's lock.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_plan.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing::nccl_fake {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

struct Match;

// What one rank has put on a stream: a call, or the calls of a group.
struct Unit {
  FakeDriver::OpRef op;
  std::shared_ptr<FakeDriver::Gate> gate;
  std::vector<std::shared_ptr<Match>> matches;
  bool broken = false;  // its communicator was aborted
};

struct Part {
  NcclCallKind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  ncclDataType_t dtype{};
  ncclRedOp_t reduce{};
  int peer = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  bool stuck = false;
};

// One collective of all ranks, or one message of two: [0] sends, [1] receives.
struct Match {
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Unit>> units;  // null: not there yet
  bool done = false;
};

// One ncclCommSplit of all ranks of a communicator.
struct Split {
  int expected = 0, arrived = 0;
};

// The ranks of one communicator.
struct Clique {
  int size = 0;
  std::shared_ptr<Split> split;  // null: not made by one
  std::vector<ncclComm*> members;
  std::map<std::uint64_t, std::shared_ptr<Match>> collectives;  // by sequence
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Match>> messages;
  int present() const {
    return static_cast<int>(std::ranges::count_if(members, [](auto* m) { return m != nullptr; }));
  }
};

}  // namespace coshard::testing::nccl_fake

struct ncclComm {
  std::shared_ptr<coshard::testing::nccl_fake::Clique> clique;
  int rank = 0;
  int device = 0;
  int polls = 0;  // that still find it in progress
  bool revoked = false, finalizing = false;
  ncclResult_t async = ncclSuccess;
  std::uint64_t collectives = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages;
  std::vector<coshard::testing::nccl_fake::Part> pending;  // called, not on the stream yet
  std::vector<std::shared_ptr<coshard::testing::nccl_fake::Unit>> queued;  // on the stream
};

namespace coshard::testing::nccl_fake {

struct AsyncFault {
  int error = 0, after = 0;
};

struct State {
  int version = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques;                      // by id
  std::map<std::pair<Clique*, std::uint64_t>, std::shared_ptr<Split>> splits;  // by turn
  std::map<std::pair<Split*, int>, std::shared_ptr<Clique>> colors;
  std::map<ncclComm*, std::uint64_t> split_turns;
  std::set<ncclComm*> alive;
  std::map<int, AsyncFault> faults;
  std::map<int, std::string> traces;
  std::uint64_t next_id = 1;
};

State& state();
// What one call or the calls of a group ask for: on the stream at once, or in progress for a while.
ncclResult_t begin(std::vector<Part> parts);
// The calls of one group become one op of the stream.
void enqueue(const std::vector<Part>& parts);
// Takes what is on the stream from it; the peers' parts never end.
void release(ncclComm& comm);

}  // namespace coshard::testing::nccl_fake
