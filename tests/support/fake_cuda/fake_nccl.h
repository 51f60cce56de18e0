#pragma once
// NCCL without a GPU, on the fake driver: communicators between the ranks (threads) of this
// process. A collective is work on each rank's stream that runs once all ranks' parts are at the
// front of their streams; one of them computes the result with plain loops. Mismatched calls never
// end, as in NCCL.
//
// Calls of a blocking communicator wait for its peers as in NCCL: while its ranks meet, while it is
// split, while a window is registered, and at the first use of an algorithm or a peer. Only an
// abort or a revoke by another thread ends such a wait. A nonblocking one is in progress for a
// random number of polls; only then is its work on the stream and its results are in the caller's
// memory. Violations are complaints (fake_nccl_state.h, Inside).
//
// With NCCL_LAUNCH_ORDER_IMPLICIT=1, an operation begins once the one before on its device, of any
// communicator, has begun (ncclLaunchPrepare and ncclLaunchFinish, enqueue.cc).
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace coshard::testing {

// Redirects coshard's NCCL calls here. Faults and counts are FakeDriver's, under the names of the
// calls: "ncclAllReduce", "ncclCommAbort", ...; a stuck ncclCommAbort or ncclCommRevoke never
// returns, a stuck collective never ends.
void install_fake_nccl();

// The version that the library reports; later functions are missing. 0: as built.
void set_fake_nccl_version(int version);
// The next communicators of this world rank fail asynchronously with `error` once they have started
// `after` more collectives; 0: no error.
void set_fake_nccl_async_error(int rank, int error, int after);
// NCCL_LAUNCH_ORDER_IMPLICIT as NCCL has read it: at the first communicator, and it keeps that. Null:
// as in a new process.
void set_fake_nccl_order(std::optional<bool> order);
// How many communicators are alive.
std::size_t fake_nccl_communicators();
// The calls since the last time, with groups by part: "ncclAllReduce,ncclSend+ncclRecv,...".
std::string take_fake_nccl_trace(int rank);

// While one is alive, it collects complaints, which then do not fail the test.
class ExpectNcclComplaints {
 public:
  ExpectNcclComplaints();
  ~ExpectNcclComplaints();
  ExpectNcclComplaints(const ExpectNcclComplaints&) = delete;
  ExpectNcclComplaints& operator=(const ExpectNcclComplaints&) = delete;
  std::vector<std::string> heard() const;
};

}  // namespace coshard::testing
