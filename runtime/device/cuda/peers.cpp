#include "runtime/device/cuda/peers.h"

#include <atomic>
#include <bit>
#include <mutex>
#include <vector>

#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"
#include "runtime/error.h"

namespace coshard {
namespace {

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// The count is the low half of the word, which streams write; a release sets the high half, which
// they leave alone, so that the word is more than any count for good.
struct alignas(64) FlagWord {
  std::uint32_t count = 0, released = 0;
};
static_assert(std::endian::native == std::endian::little);

class MappedFlag final : public Flag {
 public:
  explicit MappedFlag(FlagWord* word) : word_(word) {}
  void wait(Stream& stream, std::uint32_t value) override {
    check_cuda(cuda().StreamWaitValue(native(stream), reinterpret_cast<const std::uint64_t*>(word_),
                                      value),
               "cuStreamWaitValue64");
  }
  void write(Stream& stream, std::uint32_t value) override {
    check_cuda(cuda().StreamWriteValue(native(stream), &word_->count, value),
               "cuStreamWriteValue32");
  }
  void release() noexcept override {
    std::atomic_ref<std::uint32_t>(word_->released).store(1, std::memory_order_release);
  }
  bool released() const noexcept override {
    const std::atomic_ref<std::uint32_t> released(word_->released);
    return released.load(std::memory_order_acquire) != 0;
  }
  bool reached(std::uint32_t value) const noexcept override {
    const std::atomic_ref<std::uint32_t> count(word_->count);
    return count.load(std::memory_order_acquire) >= value;
  }

 private:
  FlagWord* word_;
};

class CudaPeers final : public PeerEngine {
 public:
  explicit CudaPeers(CudaDevice& device) : device_(device) {}
  // The device has done all its work by now.
  ~CudaPeers() override {
    for (FlagWord* page : pages_) log_cuda(cuda().FreeHost(page), "cudaFreeHost");
  }
  std::unique_ptr<Flag> make_flag() override {
    const std::scoped_lock lock(mutex_);
    if (used_ == kFlagsOfPage) {
      void* mapped = nullptr;
      check_cuda(cuda().HostAlloc(&mapped, kFlagsOfPage * sizeof(FlagWord),
                                  cudaHostAllocMapped | cudaHostAllocPortable),
                 "cudaHostAlloc of flags");
      pages_.push_back(static_cast<FlagWord*>(mapped));
      used_ = 0;
    }
    return std::make_unique<MappedFlag>(new (pages_.back() + used_++) FlagWord());
  }
  void make_current() override { device_.make_current(); }

  void reach(Device& peer) override {
    if (peer.kind() != DeviceKind::Cuda)
      fail(ErrorKind::Unsupported,
           cat(device_.name(), " cannot exchange data with ", peer.name(), " in one collective"));
    const int other = static_cast<CudaDevice&>(peer).index();
    if (other == device_.index()) return;
    int possible = 0;
    check_cuda(cuda().DeviceCanAccessPeer(&possible, device_.index(), other),
               "cudaDeviceCanAccessPeer");
    if (possible == 0)
      fail(ErrorKind::Unsupported, cat(device_.name(), " has no peer access to ", peer.name(),
                                       "; ranks on these devices need the nccl communicator"));
    device_.make_current();
    const cudaError_t status = cuda().DeviceEnablePeerAccess(other, 0);
    if (!succeeded(status) && status != cudaErrorPeerAccessAlreadyEnabled)
      check_cuda(status, device_.name(), ": peer access to ", peer.name());
  }

  void copy(const StridedCopy& c, Stream& stream) override {
    if (c.rows == 0 || c.bytes == 0) return;
    const bool dense = c.rows == 1 || (c.to_pitch == c.bytes && c.from_pitch == c.bytes);
    if (!dense) return copy_rows_on_device(device_, c, stream.native());
    check_cuda(cuda().MemcpyAsync(c.to, c.from, static_cast<std::size_t>(c.bytes * c.rows),
                                  cudaMemcpyDefault, native(stream)),
               "copy from a peer");
  }

  void reduce(DType dtype, Reduce reduce, std::span<const void* const> sources, void* target,
              std::int64_t count, Stream& stream) override {
    reduce_on_device(device_, dtype, reduce, sources, target, count, stream.native());
  }

 private:
  // Words are not given out twice: streams may still wait for those of a flag that is gone.
  static constexpr std::size_t kFlagsOfPage = 64;
  CudaDevice& device_;
  std::mutex mutex_;  // the two below
  std::vector<FlagWord*> pages_;
  std::size_t used_ = kFlagsOfPage;  // of the last page
};

}  // namespace

std::unique_ptr<PeerEngine> make_peer_engine(CudaDevice& device) {
  return std::make_unique<CudaPeers>(device);
}

}  // namespace coshard
