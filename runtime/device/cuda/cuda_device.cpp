#include "runtime/device/cuda/cuda_device.h"

#include <cstdio>

#include "runtime/device/allocation_label.h"
#include "runtime/device/cuda/allocator.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/describe.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/peers.h"
#include "runtime/device/cuda/staging.h"
#include "runtime/device/cuda/stream.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"
#include "runtime/observer.h"

namespace coshard {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cuda().DeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

// Error{DeviceFailed} unless there is a device of this index.
void require_device(int index) {
  const CudaPresence found = cuda_presence();
  const int count = found.devices;
  if (count == 0)
    fail(ErrorKind::DeviceFailed,
         cat("cuda:", index, ": ", found.problem, "; `coshard doctor` says what is missing"));
  if (index < 0 || index >= count)
    fail(ErrorKind::DeviceFailed,
         cat("cuda:", index, ": there ", count == 1 ? "is 1 device" : "are ",
             count == 1 ? "" : cat(count, " devices"), ", numbered from 0"));
}

}  // namespace

CudaDevice::CudaDevice(CudaOptions options) : options_(std::move(options)) {
  require_device(options_.index);
  name_ = cat("cuda:", options_.index);
  make_current();
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount, options_.index);
  capability_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor, options_.index) +
                attribute(cudaDevAttrComputeCapabilityMinor, options_.index);
  events_ = std::make_shared<EventPool>(options_.index);
  graphs_ = std::make_unique<CudaGraphs>(*this);
  allocator_ = std::make_unique<CudaAllocator>(options_.index);
  staging_ = std::make_unique<StagingRing>();
  compute_ = std::make_unique<CudaStream>(*this, StreamKind::Compute, options_.compute_stream);
  void* mapped = nullptr;
  check_cuda(
      cuda().HostAlloc(&mapped, sizeof(Finding), cudaHostAllocMapped | cudaHostAllocPortable),
      "cudaHostAlloc");
  finding_ = new (mapped) Finding();
}

CudaDevice::~CudaDevice() {
  // What is queued still uses the memory that goes now.
  log_cuda(cuda().SetDevice(options_.index), "cudaSetDevice");
  log_cuda(cuda().DeviceSynchronize(), "cudaDeviceSynchronize");
  extensions_.clear();
  log_cuda(cuda().FreeHost(finding_), "cudaFreeHost");
}

void CudaDevice::make_current() const {
  check_cuda(cuda().SetDevice(options_.index), name_, ": cudaSetDevice");
}

std::unique_ptr<Stream> CudaDevice::make_stream(StreamKind kind) {
  require_not_recording(*this, "a new communicator", "make a stream");
  return std::make_unique<CudaStream>(*this, kind);
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (recording()) {
    data = graphs_->take(bytes, AllocationLabel::current());
  } else if (options_.allocate) {
    data = options_.allocate(bytes, compute_->native());
    if (data == nullptr)
      fail(ErrorKind::DeviceFailed,
           cat(name_, ": the caller's allocator has no ", bytes, " bytes"));
  } else {
    make_current();
    data = allocator_->take(bytes, AllocationLabel::current());
  }
  if (options_.poison)
    check_cuda(cuda().MemsetAsync(data, 0xff, bytes, static_cast<cudaStream_t>(compute_->native())),
               "cudaMemsetAsync");
  return data;
}

void CudaDevice::deallocate(void* data, std::size_t bytes,
                            std::span<const std::shared_ptr<Event>> uses) noexcept {
  if (graphs_->give(data, bytes, uses)) return;
  if (!options_.deallocate) return allocator_->give(data, uses);
  try {
    for (const auto& use : uses) compute_->wait(*use);
    options_.deallocate(data, bytes, compute_->native());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coshard: %s: %s\n", name_.c_str(), error.what());
  }
}

void CudaDevice::upload(void* to, const void* host, std::size_t bytes) {
  require_not_recording(*this, "upload", "take data from the host");
  make_current();
  staging_->upload(to, host, bytes, *compute_, deadline());
}

void CudaDevice::download(void* host, const void* from, std::size_t bytes) {
  require_not_recording(*this, "download", "give data to the host");
  make_current();
  ++host_waits_;
  staging_->download(host, from, bytes, *compute_, deadline());
  check_finding();
}

std::int64_t CudaDevice::deadline() const { return timeout_ns() > 0 ? now_ns() + timeout_ns() : 0; }

void CudaDevice::synchronize() {
  require_not_recording(*this, "synchronize", "wait for the device");
  ++host_waits_;
  compute_->record()->synchronize(deadline());
  check_finding();
}

void CudaDevice::check_finding() {
  auto* written = reinterpret_cast<std::atomic<std::uint32_t>*>(&finding_->written);
  if (written->load(std::memory_order_acquire) == 0) return;
  const Finding found = *finding_;
  *finding_ = Finding();
  fail(ErrorKind::BadInput,
       cat(describe(static_cast<FindingKind>(found.kind), found.value, found.limit), " (found on ",
           name_, ")"));
}

MemoryStats CudaDevice::memory() const {
  MemoryStats stats = allocator_->stats();
  stats.in_use += graphs_->bytes();
  return stats;
}

std::unique_ptr<GraphRecording> CudaDevice::record_graph() { return graphs_->record(); }
bool CudaDevice::recording() const { return graphs_->recording() != 0; }

void CudaDevice::reserve_multiprocessors(int count, std::shared_ptr<Event> until) {
  reserved_ = count;
  reserved_until_ = std::move(until);
}

int CudaDevice::reserved_multiprocessors() {
  if (reserved_until_ != nullptr && reserved_until_->query()) reserve_multiprocessors(0);
  return reserved_;
}

PeerEngine* CudaDevice::peers() {
  if (!peers_) peers_ = make_peer_engine(*this);
  return peers_.get();
}

void launch_on(CudaDevice& device, CudaLaunch launch) {
  if (launch.blocks == 0) return;
  if (launch.stream == nullptr) launch.stream = device.compute_stream().native();
  device.make_current();
  check_cuda(cuda().Launch(launch), launch.name, " on cuda:", device.index(), " (", launch.blocks,
             " blocks of ", launch.threads, " threads, ", launch.shared_bytes,
             " bytes of shared memory)");
}

std::shared_ptr<Device> make_cuda_device(CudaOptions options) {
  return std::make_shared<CudaDevice>(std::move(options));
}

extern const DeviceBackend cuda_device_backend;
const DeviceBackend cuda_device_backend = {DeviceKind::Cuda,
                                           [](const DeviceChoice& choice) {
                                             CudaOptions options;
                                             options.index = choice.index;
                                             return make_cuda_device(std::move(options));
                                           },
                                           [] { return cuda_presence().devices; }, &describe_cuda};

}  // namespace coshard
