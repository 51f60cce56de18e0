#pragma once
// NCCL without a GPU, on the fake driver: communicators between the ranks (threads) of this
// process. A collective is work on each rank's stream that goes on once all ranks' parts are at the
// front of their streams; one of them computes by plain loops. Calls that do not match never end,
// as with the real one.
//
// A communicator that blocks makes its calls wait for the others where NCCL does: while its ranks
// meet, while it is split, while a window is registered, and at the first use of an algorithm or a
// peer. Only an abort or a revoke by another thread ends that. One that does not block is in
// progress for a drawn number of polls, and its work is on the stream, its results in the caller's
// memory, only then. What must not be done is a complaint (fake_nccl_state.h, Inside).
#include <cstddef>
#include <string>
#include <vector>

namespace coshard::testing {

// Makes coshard's NCCL calls go here. Faults and counts are FakeDriver's, under the names of the
// calls: "ncclAllReduce", "ncclCommAbort", ...; a stuck ncclCommAbort or ncclCommRevoke never
// returns, a stuck collective never ends.
void install_fake_nccl();

// What the library says that it is; functions that came later are missing. 0: as built.
void set_fake_nccl_version(int version);
// The next communicators of this world rank fail asynchronously with `error` once they have begun
// `after` more collectives; 0: none.
void set_fake_nccl_async_error(int rank, int error, int after);
// How many communicators are alive.
std::size_t fake_nccl_communicators();
// What was called since the last time, "ncclAllReduce,ncclSend+ncclRecv,...": of groups the parts.
std::string take_fake_nccl_trace(int rank);

// While it lives, what must not be done is heard here, and is no failure of the test.
class ExpectNcclComplaints {
 public:
  ExpectNcclComplaints();
  ~ExpectNcclComplaints();
  ExpectNcclComplaints(const ExpectNcclComplaints&) = delete;
  ExpectNcclComplaints& operator=(const ExpectNcclComplaints&) = delete;
  std::vector<std::string> heard() const;
};

}  // namespace coshard::testing
