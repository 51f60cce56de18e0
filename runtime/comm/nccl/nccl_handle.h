#pragma once
// One ncclComm_t, of a communicator that blocks: made, asked how it is, aborted or destroyed. Owned
// by an NcclCommunicator. Calls into NCCL are the rank's thread's, in enter(), one at a time; abort
// and destruction are done by a helper thread, so that none of them can hang who wants them, and
// the watchdog may ask and begin an abort while the rank is inside a call.
//
// An abort comes first and ends the call inside; the memory goes when nobody is inside any more.
// NCCL's abort and finalize poll until no graph has the communicator's operations (commDestroySync,
// init.cc, localPersistentRefs; 2.26 and newer), so the graphs are ended before.
// What NCCL stores into lies on the heap, in what the helper shares.
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
  // Gives up what is still there: abort. The caller destroys a healthy one first.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Makes it, among `size` ranks that give the same id, or among those ranks of `parent` that give
  // the same color; returns when all have come. Error{CommFailed}.
  void connect(const ncclUniqueId& id, int size, int rank, bool zero_ctas);
  void split(NcclHandle& parent, int color, int key, bool zero_ctas);
  // Does `call` with the communicator, unless it is being aborted: ncclInvalidUsage.
  template <class Call>
  ncclResult_t enter(const Call& call) {
    if (!begin_call()) return ncclInvalidUsage;
    const ncclResult_t status = call(comm());
    end_call();
    return status;
  }

  // The graph has operations of this communicator.
  void keep(const std::shared_ptr<GraphExec>& graph);
  bool alive() const;  // connected, and nobody aborts it
  const std::string& name() const { return name_; }
  // Any thread. What ncclCommGetAsyncError says; ncclSuccess of one that is not alive.
  ncclResult_t state() const;
  std::string text(ncclResult_t status) const;  // nccl_text
  // Any thread. Since when the rank's thread is inside a call; 0: it is not.
  std::int64_t inside_since_ns() const;

  // Any thread; does not wait. Revoke where NCCL has it, then abort. All ranks have to do it.
  // Idempotent.
  void begin_abort();
  // begin_abort(), then what is to be added to the error: nothing, that it failed, or that it has
  // not come back within `grace` and its thread is left behind. Not from inside.
  std::string abort(std::chrono::nanoseconds grace);
  // Of a healthy one whose operations are over, and whose peers do the same.
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
