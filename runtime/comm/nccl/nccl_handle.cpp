#include "runtime/comm/nccl/nccl_handle.h"

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/observer.h>
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/cuda/graph.h"

namespace coshard {
namespace {

constexpr std::chrono::seconds kRevokeGrace{2};

}  // namespace

// Shared by the handle and its helper, either of which may be the last owner.
struct NcclHandle::Shared {
  mutable std::mutex mutex;  // guards all but `slot` and the helper
  std::condition_variable changed;
  ncclComm_t slot = nullptr;  // NCCL writes it while the rank is inside connect() or split()
  bool connected = false;
  std::int64_t inside_since_ns = 0;  // 0: no call in progress
  const char* ending = nullptr;      // what the helper does; null: no helper
  bool ended = false;
  std::string problem;
  std::vector<std::weak_ptr<GraphExec>> graphs;
  std::thread helper;  // joined or detached by the rank's thread

  ncclComm_t comm() { return __atomic_load_n(&slot, __ATOMIC_ACQUIRE); }
};

NcclHandle::NcclHandle(std::string name)
    : name_(std::move(name)), shared_(std::make_shared<Shared>()) {}

NcclHandle::~NcclHandle() {
  const std::string text = abort(std::chrono::seconds(5));
  if (!text.empty()) std::fprintf(stderr, "coshard: %s\n", text.c_str());
}

ncclConfig_t NcclHandle::config(bool zero_ctas) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  if (nccl_has(NcclFeature::CommName)) {
    config.commName = name_.c_str();
    if (zero_ctas) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  }
  return config;
}

void NcclHandle::connect(const ncclUniqueId& id, int size, int rank, bool zero_ctas) {
  ncclConfig_t wanted = config(zero_ctas);
  const ncclResult_t status = enter([&](ncclComm_t) {
    return nccl().CommInitRankConfig(&shared_->slot, size, id, rank, &wanted);
  });
  check_nccl(status, str_cat("ncclCommInitRankConfig of ", name_, ", rank ", rank, " of ", size));
  const std::scoped_lock lock(shared_->mutex);
  shared_->connected = true;
}

void NcclHandle::split(NcclHandle& parent, int color, int key, bool zero_ctas) {
  require_nccl(NcclFeature::Split, "ncclCommSplit");
  ncclConfig_t wanted = config(zero_ctas);
  const ncclResult_t status = parent.enter(
      [&](ncclComm_t comm) { return nccl().CommSplit(comm, color, key, &shared_->slot, &wanted); });
  check_nccl(status, str_cat("ncclCommSplit of ", parent.name(), " into ", name_));
  const std::scoped_lock lock(shared_->mutex);
  shared_->connected = true;
}

bool NcclHandle::begin_call() {
  const std::scoped_lock lock(shared_->mutex);
  if (shared_->ending != nullptr) return false;
  shared_->inside_since_ns = now_ns();
  return true;
}

void NcclHandle::end_call() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->inside_since_ns = 0;
  shared_->changed.notify_all();
}

ncclComm_t NcclHandle::comm() const { return shared_->comm(); }

void NcclHandle::keep(const std::shared_ptr<GraphExec>& graph) {
  const std::scoped_lock lock(shared_->mutex);
  std::erase_if(shared_->graphs, [](const auto& known) { return known.expired(); });
  shared_->graphs.push_back(graph);
}

void NcclHandle::end_graphs(Shared& shared) {
  std::vector<std::weak_ptr<GraphExec>> graphs;
  {
    const std::scoped_lock lock(shared.mutex);
    graphs.swap(shared.graphs);
  }
  for (const auto& known : graphs)
    if (const auto graph = known.lock()) graph->end();
}

bool NcclHandle::alive() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->connected && shared_->ending == nullptr;
}

std::int64_t NcclHandle::inside_since_ns() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->inside_since_ns;
}

// Under the lock, so that no helper frees the communicator.
ncclResult_t NcclHandle::state() const {
  const std::scoped_lock lock(shared_->mutex);
  ncclResult_t async = ncclSuccess;
  if (!shared_->connected || shared_->ending != nullptr) return async;
  const ncclResult_t status = nccl().CommGetAsyncError(shared_->comm(), &async);
  return status != ncclSuccess ? status : async;
}

std::string NcclHandle::text(ncclResult_t status) const {
  const std::scoped_lock lock(shared_->mutex);
  const bool usable = shared_->connected && shared_->ending == nullptr;
  return nccl_text(status, usable ? shared_->comm() : nullptr);
}

// A revoke (2.28.7) ends the call in progress and the kernels, and frees nothing, so that the call
// can be waited for. It needs initialised ranks (commRevokeAsync, init.cc, uses their shared
// state). Otherwise the abort ends the call; NCCL frees the memory when the last rank of this
// process has aborted (commReclaim), possibly with the call still in progress.
std::string NcclHandle::revoke_and_abort(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  const bool revokes =
      shared.connected && nccl().CommRevoke != nullptr && nccl_has(NcclFeature::Revoke);
  // During initialisation the slot is empty until NCCL has a communicator to abort.
  while (shared.inside_since_ns != 0 && shared.comm() == nullptr)
    shared.changed.wait_for(lock, std::chrono::microseconds(50));
  if (shared.comm() == nullptr) return "";
  if (revokes) {
    lock.unlock();
    // A failed communicator may refuse the revoke; it is aborted anyway.
    const bool let_go = nccl().CommRevoke(shared.comm(), 0) == ncclSuccess;
    lock.lock();
    if (let_go)  // if the call does not return, fall back to the abort
      shared.changed.wait_for(lock, kRevokeGrace, [&] { return shared.inside_since_ns == 0; });
  }
  lock.unlock();
  end_graphs(shared);
  const ncclResult_t status = nccl().CommAbort(shared.comm());
  return nccl_went_well(status) ? "" : str_cat("ncclCommAbort: ", nccl_text(status, nullptr));
}

void NcclHandle::start_helper(const char* what, std::string (*work)(Shared&)) {
  shared_->ending = what;
  shared_->helper = std::thread([shared = shared_, work] {
    pthread_setname_np(pthread_self(), "nccl abort");
    std::string text = work(*shared);
    const std::scoped_lock lock(shared->mutex);
    shared->problem = std::move(text);
    shared->ended = true;
    shared->changed.notify_all();
  });
}

std::string NcclHandle::end_helper(std::chrono::nanoseconds grace) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->changed.wait_for(lock, grace, [&] { return shared_->ended; })) {
    lock.unlock();
    if (shared_->helper.joinable()) shared_->helper.join();
    return shared_->problem.empty() ? "" : str_cat(name_, ": ", shared_->problem);
  }
  if (shared_->helper.joinable()) shared_->helper.detach();
  return str_cat("the ", shared_->ending, " of ", name_, " has not returned after ",
                 to_string(grace), "; its thread is abandoned");
}

void NcclHandle::begin_abort() {
  const std::scoped_lock lock(shared_->mutex);
  const bool something = shared_->comm() != nullptr || shared_->inside_since_ns != 0;
  if (shared_->ending == nullptr && something) start_helper("abort", revoke_and_abort);
}

std::string NcclHandle::abort(std::chrono::nanoseconds grace) {
  begin_abort();
  {
    const std::scoped_lock lock(shared_->mutex);
    if (shared_->ending == nullptr || !shared_->helper.joinable()) return "";
  }
  return end_helper(grace);
}

std::string NcclHandle::destroy(std::chrono::nanoseconds grace) {
  if (!alive()) return abort(grace);
  {
    const std::scoped_lock lock(shared_->mutex);
    start_helper("destruction", [](Shared& shared) -> std::string {
      end_graphs(shared);
      ncclResult_t status = nccl().CommFinalize(shared.comm());
      if (!nccl_went_well(status)) {
        status = nccl().CommAbort(shared.comm());
        return nccl_went_well(status) ? "" : str_cat("ncclCommAbort: ", nccl_text(status, nullptr));
      }
      status = nccl().CommDestroy(shared.comm());
      return nccl_went_well(status) ? "" : str_cat("ncclCommDestroy: ", nccl_text(status, nullptr));
    });
  }
  return end_helper(grace);
}

}  // namespace coshard
