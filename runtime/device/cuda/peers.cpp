#include "runtime/device/cuda/peers.h"

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"

namespace coshard {
namespace {

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

class CudaPeers final : public PeerEngine {
 public:
  explicit CudaPeers(CudaDevice& device) : device_(device) {}
  void make_current() override { device_.make_current(); }

  void reach(Device& peer) override {
    if (peer.kind() != DeviceKind::Cuda)
      fail(ErrorKind::Unsupported, str_cat(device_.name(), " cannot exchange data with ",
                                           peer.name(), " in one collective"));
    const int other = static_cast<CudaDevice&>(peer).index();
    if (other == device_.index()) return;
    int possible = 0;
    check_cuda(cuda().DeviceCanAccessPeer(&possible, device_.index(), other),
               "cudaDeviceCanAccessPeer");
    if (possible == 0)
      fail(ErrorKind::Unsupported, str_cat(device_.name(), " has no peer access to ", peer.name(),
                                           "; ranks on these devices need the nccl communicator"));
    device_.make_current();
    const cudaError_t status = cuda().DeviceEnablePeerAccess(other, 0);
    if (!succeeded(status) && status != cudaErrorPeerAccessAlreadyEnabled)
      check_cuda(status, device_.name(), ": peer access to ", peer.name());
    static_cast<CudaDevice&>(peer).allow_access(device_.index());
  }

  void copy(std::span<const StridedCopy> copies, Stream& stream) override {
    if (copies.size() != 1) return copy_rows_on_device(device_, copies, stream.native());
    const StridedCopy& c = copies[0];
    if (c.rows == 0 || c.bytes == 0) return;
    const bool dense = c.rows == 1 || (c.to_pitch == c.bytes && c.from_pitch == c.bytes);
    if (!dense) return copy_rows_on_device(device_, copies, stream.native());
    check_cuda(cuda().MemcpyAsync(c.to, c.from, static_cast<std::size_t>(c.bytes * c.rows),
                                  cudaMemcpyDefault, native(stream)),
               "copy from a peer");
  }

  void reduce(DType dtype, Reduce reduce, std::span<const void* const> sources, void* target,
              std::int64_t count, Stream& stream) override {
    reduce_on_device(device_, dtype, reduce, sources, target, count, stream.native());
  }

 private:
  CudaDevice& device_;
};

}  // namespace

std::unique_ptr<PeerEngine> make_peer_engine(CudaDevice& device) {
  return std::make_unique<CudaPeers>(device);
}

}  // namespace coshard
