#pragma once
// State of the fake NCCL, and how calls of ranks become work on streams. Under the driver's lock.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
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

// One rank's work on a stream: a call, or the calls of a group.
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
  std::uint64_t id = 0;
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Unit>> units;  // null: not arrived yet
  bool done = false, hung = false;
};

// One ncclCommSplit of all ranks of a communicator.
struct Split {
  int expected = 0, arrived = 0;
};

// The caller's memory into which NCCL stores a result when the call is over; it must outlive that.
template <class T>
struct Slot {
  T* at = nullptr;
  T value{};
};

// The ranks of one communicator.
struct Clique {
  int size = 0, gone = 0;        // gone: aborted or destroyed
  std::shared_ptr<Split> split;  // null: not created by one
  // What its ranks set up together, and which have arrived: "window 0", "ncclAllReduce", "0 to 1".
  std::map<std::string, std::set<int>> meetings;
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
  bool blocking = true;
  int polls = 0;         // nonblocking: polls that will still find it in progress
  bool ready = false;    // its ranks have met
  bool ordered = false;  // it keeps the order of launches on its device
  bool aborted = false;  // the flag that threads waiting inside read
  bool revoked = false, finalizing = false;
  const char* inside = nullptr;  // the call that a thread is in
  int windows = 0;               // registered so far
  std::optional<coshard::testing::nccl_fake::Slot<ncclComm*>> child;
  std::optional<coshard::testing::nccl_fake::Slot<ncclWindow_t>> window;
  ncclResult_t async = ncclSuccess;
  // Held by every graph node that is one of its operations.
  std::shared_ptr<void> graphs = std::make_shared<char>();
  std::uint64_t collectives = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages;
  std::vector<coshard::testing::nccl_fake::Part> pending;  // called, but not yet on the stream
  std::vector<std::shared_ptr<coshard::testing::nccl_fake::Unit>> queued;  // on the stream
};

namespace coshard::testing::nccl_fake {

struct AsyncFault {
  int error = 0, after = 0;
};

struct State {
  int version = 0;
  std::condition_variable_any changed;  // a rank has arrived, or must leave
  bool complaints_expected = false;
  std::vector<std::string> complaints;                     // while they are expected
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by id
  std::map<std::pair<Clique*, std::uint64_t>, std::shared_ptr<Split>> splits;  // by turn
  std::map<std::pair<Split*, int>, std::shared_ptr<Clique>> colors;
  std::map<ncclComm*, std::uint64_t> split_turns;
  std::set<ncclComm*> alive;
  std::map<int, AsyncFault> faults;
  std::map<int, std::string> traces;
  std::uint64_t next_id = 1, next_match = 1;
  // NCCL_LAUNCH_ORDER_IMPLICIT as it was read, which is kept; -1: not set.
  std::optional<int> order;
  std::map<int, FakeDriver::Stream*> launch_orders;  // by device
};

State& state();
// Reports a violation of NCCL's rules: to the fake driver, or to ExpectNcclComplaints.
void complain(const std::string& text);
using Lock = std::unique_lock<std::recursive_mutex>;

// Only one thread may be inside a communicator, except in ncclCommAbort, ncclCommRevoke and
// ncclCommGetAsyncError: "it is not allowed to issue NCCL operations to a single communicator in
// parallel with multiple threads" (NCCL user guide, Thread safety). And none may call it while it
// is in progress: ncclCommEnsureReady, init.cc, "Attempt to use communicator before the previous
// operation returned ncclSuccess".
class Inside {
 public:
  Inside(ncclComm* comm, const char* name);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ncclResult_t status() const { return status_; }

 private:
  ncclComm* comm_;
  ncclResult_t status_ = ncclSuccess;
};

// Blocks until done() holds; false if the communicator is aborted or revoked. `held` is locked
// once.
template <class Done>
bool await(Lock& held, const ncclComm& comm, const Done& done) {
  while (!comm.aborted && !done()) state().changed.wait_for(held, std::chrono::milliseconds(1));
  return !comm.aborted;
}

// Returns once no graph has operations of `comm`: ncclCommAbort, ncclCommFinalize and
// ncclCommDestroy poll until then (commDestroySync, init.cc, localPersistentRefs).
void await_graphs(Lock& held, const ncclComm& comm);
// Joins a setup by `ranks` ranks; returns whether all have joined.
bool meet(ncclComm& comm, const std::string& what, std::size_t ranks);
// Starts a call or the calls of a group: on the stream at once, or in progress for some polls.
ncclResult_t begin(Lock& held, std::vector<Part> parts);
// Whether a communicator keeps the order (NCCL_LAUNCH_ORDER_IMPLICIT).
bool keeps_order();
// The calls of one group become one op of the stream.
void enqueue(const std::vector<Part>& parts);
// Removes its work from the stream; the peers' parts never end.
void release(ncclComm& comm);

}  // namespace coshard::testing::nccl_fake
