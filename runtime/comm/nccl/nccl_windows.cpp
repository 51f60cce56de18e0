// Memory accessible to the copy engines of all ranks: symmetric windows (NCCL 2.27), and
// collectives on them that use no SMs (2.28.3).
#include <algorithm>
#include <cstdio>

#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"

namespace coshard {

std::shared_ptr<Buffer> NcclCommunicator::symmetric_buffer(std::size_t bytes) {
  require_nccl(NcclFeature::CopyEngine, "symmetric buffers");
  CS_REQUIRE(bytes > 0, "symmetric_buffer on ", title(), ": the size is 0 bytes");
  flush_messages();
  // A window consists of whole pages.
  constexpr std::size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  domain_->device->make_current();
  void* data = nullptr;
  call(str_cat("ncclMemAlloc of ", rounded, " bytes"),
       [&](ncclComm_t) { return nccl().MemAlloc(&data, rounded); });
  // Freed with the last owner; the window is deregistered with the communicator. ncclMemFree does
  // not wait for outstanding reads.
  const std::shared_ptr<void> memory(data, [device = domain_->device](void* gone) {
    try {
      device->synchronize();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "coshard: freeing a symmetric buffer: %s\n", error.what());
    }
    log_nccl(nccl().MemFree(gone), "ncclMemFree");
  });
  const auto made = std::make_shared<Window>(Window{data, rounded, memory});
  call(str_cat("ncclCommWindowRegister of ", rounded, " bytes on ", title()), [&](ncclComm_t comm) {
    return nccl().CommWindowRegister(comm, data, rounded, &made->window, NCCL_WIN_COLL_SYMMETRIC);
  });
  if (made->window == nullptr)
    fail(ErrorKind::Unsupported, str_cat("symmetric buffers on ", title(),
                                         ": NCCL registered no window; all devices must have "
                                         "peer access to each other"));
  windows_.push_back(made);
  auto borrowed = domain_->device->borrow(data, bytes);
  struct Held {
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<void> memory;
  };
  auto held = std::make_shared<Held>(Held{std::move(borrowed), memory});
  return {held, held->buffer.get()};
}

bool NcclCommunicator::in_window(const void* data) const {
  const auto* at = static_cast<const char*>(data);
  return std::ranges::any_of(windows_, [at](const auto& window) {
    const auto* begin = static_cast<const char*>(window->data);
    return at >= begin && at < begin + window->bytes;
  });
}

std::string_view NcclCommunicator::path_of(const NcclPlan& plan) const {
  constexpr std::string_view kKernel = "SM kernel requested";
  if (!domain_->options.copy_engine || plan.rounds.size() != 1 || plan.rounds[0].size() != 1)
    return kKernel;
  const NcclCall& only = plan.rounds[0][0];
  const bool able = only.kind == NcclCallKind::AllGather || only.kind == NcclCallKind::AllToAll;
  return able && in_window(only.send) && in_window(only.recv) ? kCopyEngine : kKernel;
}

}  // namespace coshard
