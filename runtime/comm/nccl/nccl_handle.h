#pragma once
// One blocking ncclComm_t: its creation, state, abort and destruction. Owned by an
// NcclCommunicator. NCCL is called on the rank's thread, in enter(), one call at a time; abort and
// destruction run on a helper thread, so that they cannot hang the caller, and the watchdog may
// query the state and begin an abort while the rank is inside a call.
//
// A revoke or an abort ends the call in progress; the memory is freed when no call is in progress
// any more. NCCL's abort and finalize poll until no graph has the communicator's operations
// (commDestroySync, init.cc, localPersistentRefs; 2.26 and newer), so the graphs are ended first.
// Memory that NCCL writes to is on the heap, shared with the helper.
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace coshard {

class GraphExec;

class NcclHandle {
 public:
  // `name` is for messages and, where NCCL takes one, for profilers.
  explicit NcclHandle(std::string name);
  // Aborts a live communicator. The caller destroys a healthy one first.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Creates the communicator among `size` ranks with the same id, or among the ranks of `parent`
  // with the same color; returns when all have joined. Error{CommFailed}.
  void connect(const ncclUniqueId& id, int size, int rank, bool zero_ctas);
  void split(NcclHandle& parent, int color, int key, bool zero_ctas);
  // Runs `call` with the communicator; ncclInvalidUsage if it is being aborted.
  template <class Call>
  ncclResult_t enter(const Call& call) {
    if (!begin_call()) return ncclInvalidUsage;
    const ncclResult_t status = call(comm());
    end_call();
    return status;
  }

  // Registers a graph that has operations of this communicator.
  void keep(const std::shared_ptr<GraphExec>& graph);
  bool alive() const;  // connected, and not being aborted
  const std::string& name() const { return name_; }
  // Any thread. The result of ncclCommGetAsyncError; ncclSuccess if not alive.
  ncclResult_t state() const;
  std::string text(ncclResult_t status) const;  // nccl_text
  // Any thread. Since when the rank's thread has been inside a call; 0: it is not.
  std::int64_t inside_since_ns() const;

  // Any thread; does not wait. Revokes if NCCL supports it, then aborts. All ranks must call it.
  // Idempotent.
  void begin_abort();
  // begin_abort(), and waits for it. Returns text to add to the error: empty, that the abort
  // failed, or that it has not returned within `grace` and its thread is abandoned. Not from within
  // a call.
  std::string abort(std::chrono::nanoseconds grace);
  // For a healthy communicator whose operations are complete, and whose peers do the same.
  std::string destroy(std::chrono::nanoseconds grace);

 private:
  struct Shared;
  bool begin_call();
  void end_call();
  ncclComm_t comm() const;
  ncclConfig_t config(bool zero_ctas) const;
  static void end_graphs(Shared& shared);
  static std::string revoke_and_abort(Shared& shared);
  void start_helper(const char* what, std::string (*work)(Shared&));  // with the mutex held
  std::string end_helper(std::chrono::nanoseconds grace);

  std::string name_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace coshard
