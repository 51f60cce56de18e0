#include "runtime/comm/nccl/nccl_handle.h"

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/coro/deadline.h"
#include "runtime/error.h"
#include "runtime/observer.h"

namespace coshard {
namespace {

// Shared by the caller and the helper, either of which may be the last.
struct NcclAside {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::string text;  // what went wrong
};

// Both phases. Nobody else is inside NCCL with this communicator; its kernels end with the revoke
// or the abort.
std::string revoke_and_abort(ncclComm_t comm) {
  if (nccl().CommRevoke != nullptr && nccl_has(NcclFeature::Revoke)) {
    // What it says is of no interest: a communicator that failed may refuse, and is aborted anyway.
    ncclResult_t status = nccl().CommRevoke(comm, 0);
    while (status == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (nccl().CommGetAsyncError(comm, &status) != ncclSuccess) break;
    }
  }
  const ncclResult_t status = nccl().CommAbort(comm);
  return nccl_went_well(status) ? "" : cat("ncclCommAbort: ", nccl_text(status, nullptr));
}

}  // namespace

NcclHandle::~NcclHandle() {
  const std::string text = abort(std::chrono::seconds(5));
  if (!text.empty()) std::fprintf(stderr, "coshard: %s\n", text.c_str());
}

ncclConfig_t NcclHandle::config(bool zero_ctas) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (nccl_has(NcclFeature::CommName)) {
    config.commName = name_.c_str();
    if (zero_ctas) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  }
  return config;
}

void NcclHandle::connect(const ncclUniqueId& id, int size, int rank, bool zero_ctas) {
  ncclConfig_t wanted = config(zero_ctas);
  check_nccl(nccl().CommInitRankConfig(&comm_, size, id, rank, &wanted),
             cat("ncclCommInitRankConfig of ", name_, ", rank ", rank, " of ", size));
}

void NcclHandle::split(const NcclHandle& parent, int color, int key, bool zero_ctas) {
  require_nccl(NcclFeature::Split, "ncclCommSplit");
  ncclConfig_t wanted = config(zero_ctas);
  check_nccl(nccl().CommSplit(parent.comm(), color, key, &comm_, &wanted),
             cat("ncclCommSplit of ", parent.name(), " into ", name_), parent.comm());
}

ncclResult_t NcclHandle::state() const {
  ncclResult_t async = ncclSuccess;
  const ncclResult_t status = nccl().CommGetAsyncError(comm_, &async);
  return status != ncclSuccess ? status : async;
}

std::string NcclHandle::aside(const char* what, std::function<std::string(ncclComm_t)> work,
                              std::chrono::nanoseconds grace) {
  auto shared = std::make_shared<NcclAside>();
  std::thread helper([shared, comm = comm_, work = std::move(work)] {
    pthread_setname_np(pthread_self(), "nccl abort");
    std::string text = work(comm);
    const std::scoped_lock lock(shared->mutex);
    shared->text = std::move(text);
    shared->over = true;
    shared->changed.notify_all();
  });
  comm_ = nullptr;
  std::unique_lock lock(shared->mutex);
  const bool over = shared->changed.wait_for(lock, grace, [&] { return shared->over; });
  lock.unlock();
  if (over) {
    helper.join();
    return shared->text.empty() ? "" : cat(name_, ": ", shared->text);
  }
  helper.detach();
  return cat("the ", what, " of ", name_, " has not come back after ", to_string(grace),
             "; its thread is left behind");
}

std::string NcclHandle::abort(std::chrono::nanoseconds grace) {
  return comm_ == nullptr ? "" : aside("abort", revoke_and_abort, grace);
}

std::string NcclHandle::destroy(std::chrono::nanoseconds limit, const std::function<bool()>& stop,
                                std::chrono::nanoseconds grace) {
  if (comm_ == nullptr) return "";
  if (stop() || !nccl_went_well(nccl().CommFinalize(comm_))) return abort(grace);
  const std::int64_t deadline = now_ns() + limit.count();
  while (state() == ncclInProgress) {
    if (now_ns() >= deadline || stop()) return abort(grace);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (state() != ncclSuccess) return abort(grace);
  return aside(
      "destruction",
      [](ncclComm_t comm) {
        const ncclResult_t status = nccl().CommDestroy(comm);
        return nccl_went_well(status) ? "" : cat("ncclCommDestroy: ", nccl_text(status, nullptr));
      },
      grace);
}

}  // namespace coshard
