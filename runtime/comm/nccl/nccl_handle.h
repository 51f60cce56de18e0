#pragma once
// One ncclComm_t: made, asked how it is, aborted or destroyed, none of which can hang the caller.
// Owned by a communicator; used on the rank's thread, but for the abort, which a helper thread does
// and which the caller waits for only so long.
#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace coshard {

class NcclHandle {
 public:
  // `name` is for messages and, where NCCL takes one, for profilers.
  explicit NcclHandle(std::string name) : name_(std::move(name)) {}
  // Gives up what is still there: abort. The caller destroys a healthy one first.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Begins to make it, among `size` ranks that give the same id, or among those ranks of `parent`
  // that give the same color. In progress until state() says otherwise. Error{CommFailed}.
  void connect(const ncclUniqueId& id, int size, int rank, bool zero_ctas);
  void split(const NcclHandle& parent, int color, int key, bool zero_ctas);

  ncclComm_t comm() const { return comm_; }
  bool alive() const { return comm_ != nullptr; }
  const std::string& name() const { return name_; }
  // What ncclCommGetAsyncError says: ncclSuccess, ncclInProgress, or what went wrong.
  ncclResult_t state() const;

  // Revoke where NCCL has it, then abort, by a helper thread. All ranks have to do it. Returns
  // what is to be added to the error: nothing, that it failed, or that it has not come back within
  // `grace` and its thread is left behind. Idempotent.
  std::string abort(std::chrono::nanoseconds grace);
  // Of a healthy one, whose peers do the same: finalize and destroy, or what abort says when that
  // takes longer than `limit` or `stop` says so meanwhile.
  std::string destroy(std::chrono::nanoseconds limit, const std::function<bool()>& stop,
                      std::chrono::nanoseconds grace);

 private:
  ncclConfig_t config(bool zero_ctas) const;
  // `work` by a helper thread; as abort().
  std::string aside(const char* what, std::function<std::string(ncclComm_t)> work,
                    std::chrono::nanoseconds grace);

  std::string name_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace coshard
