#include "runtime/device/cuda/cuda_device.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/observer.h>
#include "runtime/device/allocation_label.h"
#include "runtime/device/cuda/allocator.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/clock.h"
#include "runtime/device/cuda/describe.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/peers.h"
#include "runtime/device/cuda/staging.h"
#include "runtime/device/cuda/stream.h"
#include "runtime/device/make_device.h"
#include "runtime/device/stream_times.h"

namespace coshard {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cuda().DeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

// Error{DeviceFailed} if there is no device of this index, Error{Unsupported} without the module.
void require_device(int index) {
  const CudaPresence found = cuda_presence();
  if (!found.loaded) fail(ErrorKind::Unsupported, str_cat("cuda:", index, ": ", found.problem));
  const int count = found.devices;
  if (count == 0)
    fail(ErrorKind::DeviceFailed,
         str_cat("cuda:", index, ": ", found.problem, "; `coshard doctor` says what is missing"));
  if (index < 0 || index >= count)
    fail(ErrorKind::DeviceFailed,
         str_cat("cuda:", index, ": no such device; this machine has ", count,
                 count == 1 ? " device" : " devices", ", numbered from 0"));
}

void load_kernels(const CudaDevice& device) {
  device.make_current();
  for (const KernelEntry* kernel = first_kernel(); kernel != nullptr; kernel = kernel->next) {
    cudaFuncAttributes attributes{};
    check_cuda(cuda().FuncGetAttributes(&attributes, kernel->function), "cuda:", device.index(),
               ": cudaFuncGetAttributes, which loads a kernel");
  }
}

constexpr std::size_t kSharedBytesOfAll = 48 * 1024;  // that every kernel may use

void allow_shared_bytes(const CudaDevice& device, const CudaLaunch& launch) {
  static std::mutex mutex;
  std::atomic<std::size_t>& allowed =
      launch.entry->shared_allowed.at(static_cast<std::size_t>(device.index()));
  if (launch.shared_bytes <= allowed.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock(mutex);  // the allowance only grows
  if (launch.shared_bytes <= allowed.load(std::memory_order_relaxed)) return;
  check_cuda(cuda().FuncSetAttribute(launch.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(launch.shared_bytes)),
             launch.name, " on cuda:", device.index(), ": ", launch.shared_bytes,
             " bytes of shared memory");
  allowed.store(launch.shared_bytes, std::memory_order_release);
}

}  // namespace

CudaDevice::CudaDevice(CudaOptions options) : options_(std::move(options)) {
  CS_REQUIRE((options_.allocate != nullptr) == (options_.deallocate != nullptr),
             "CudaOptions: give both allocate and deallocate; only ",
             options_.allocate ? "allocate" : "deallocate", " is given");
  require_device(options_.index);
  name_ = str_cat("cuda:", options_.index);
  make_current();
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount, options_.index);
  capability_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor, options_.index) +
                attribute(cudaDevAttrComputeCapabilityMinor, options_.index);
  events_ = std::make_shared<EventPool>(options_.index, false);
  timed_events_ = std::make_shared<EventPool>(options_.index, true);
  graphs_ = std::make_unique<CudaGraphs>(*this);
  compute_ = std::make_unique<CudaStream>(*this, StreamKind::Compute, options_.compute_stream);
  clock_ = std::make_unique<CudaClock>(*this);
  allocator_ = std::make_unique<CudaAllocator>(options_.index, *compute_);
  staging_ = std::make_unique<StagingRing>();
  void* mapped = nullptr;
  check_cuda(
      cuda().HostAlloc(&mapped, sizeof(DeviceAssert), cudaHostAllocMapped | cudaHostAllocPortable),
      "cudaHostAlloc");
  finding_ = new (mapped) DeviceAssert();
}

CudaDevice::~CudaDevice() {
  // Queued work still uses the memory that is freed now.
  log_cuda(cuda().SetDevice(options_.index), "cudaSetDevice");
  try {
    allocator_->settle();  // including memory that other devices' streams still read
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coshard: destroying %s: %s\n", name_.c_str(), error.what());
  }
  log_cuda(cuda().DeviceSynchronize(), "cudaDeviceSynchronize");
  extensions_.clear();
  log_cuda(cuda().FreeHost(finding_), "cudaFreeHost");
}

void CudaDevice::make_current() const {
  int current = -1;
  if (succeeded(cuda().GetDevice(&current)) && current == options_.index) [[likely]]
    return;
  check_cuda(cuda().SetDevice(options_.index), name_, ": cudaSetDevice");
}

std::unique_ptr<Stream> CudaDevice::make_stream(StreamKind kind) {
  require_not_recording(*this, "a new communicator", "create a stream");
  return std::make_unique<CudaStream>(*this, kind);
}

Stream& CudaDevice::compute_stream() { return *compute_; }

void CudaDevice::allow_access(int device) { allocator_->allow_access(device); }

// When the pool is exhausted: first the compute stream waits for other streams' uses of freed
// blocks. Then the host waits too, since memory whose free it has not seen complete cannot be
// returned to the device (cuda.h, cudaMemPoolTrimTo).
void* CudaDevice::from_pool(std::size_t bytes) {
  const std::string_view label = AllocationLabel::current();
  make_current();
  void* data = allocator_->take(bytes, label);
  if (data != nullptr || bytes == 0) [[likely]]
    return data;
  allocator_->settle();
  data = allocator_->take(bytes, label);
  if (data != nullptr) return data;
  trim();
  graphs_->free_spare();
  data = allocator_->take(bytes, label);
  if (data == nullptr) fail_request(bytes, label, graphs_->bytes());
  return data;
}

void CudaDevice::trim() {
  allocator_->settle();
  compute_->record()->synchronize(deadline());
  allocator_->trim();
}

void CudaDevice::fail_request(std::size_t bytes, std::string_view label, std::size_t of_graphs) {
  allocator_->fail_request(bytes, label, of_graphs);
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (recording()) {
    data = graphs_->take(bytes, AllocationLabel::current());
  } else if (options_.allocate) {
    data = options_.allocate(bytes, compute_->native());
    if (data == nullptr)
      fail(ErrorKind::DeviceFailed,
           str_cat(name_, ": the caller's allocator failed to allocate ", bytes, " bytes"));
  } else {
    data = from_pool(bytes);
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
  require_not_recording(*this, "upload", "copy from the host");
  make_current();
  staging_->upload(to, host, bytes, *compute_, deadline());
}

void CudaDevice::download(void* host, const void* from, std::size_t bytes) {
  require_not_recording(*this, "download", "copy to the host");
  make_current();
  ++host_waits_;
  staging_->download(host, from, bytes, *compute_, deadline());
  times().tell();
  check_finding();
}

std::int64_t CudaDevice::deadline() const { return timeout_ns() > 0 ? now_ns() + timeout_ns() : 0; }

void CudaDevice::synchronize() {
  require_not_recording(*this, "synchronize", "wait for the device");
  make_current();
  ++host_waits_;
  compute_->record()->synchronize(deadline());
  times().tell();
  check_finding();
}

void CudaDevice::check_finding() {
  auto* written = reinterpret_cast<std::atomic<std::uint32_t>*>(&finding_->written);
  if (written->load(std::memory_order_acquire) == 0) return;
  const DeviceAssert found = *finding_;
  *finding_ = DeviceAssert();
  fail(ErrorKind::BadInput,
       str_cat(describe(static_cast<DeviceAssertKind>(found.kind), found.value, found.limit),
               " (found on ", name_, ")"));
}

MemoryStats CudaDevice::memory() const {
  MemoryStats stats = allocator_->stats();
  stats.in_use += graphs_->bytes();
  return stats;
}

std::unique_ptr<GraphRecording> CudaDevice::record_graph() { return graphs_->record(); }
bool CudaDevice::recording() const { return graphs_->recording() != 0; }

PeerEngine* CudaDevice::peers() {
  if (!peers_) peers_ = make_peer_engine(*this);
  return peers_.get();
}

void launch_on(CudaDevice& device, CudaLaunch launch) {
  if (launch.blocks == 0) return;
  if (launch.stream == nullptr) launch.stream = device.compute_stream().native();
  device.make_current();
  if (launch.shared_bytes > kSharedBytesOfAll) allow_shared_bytes(device, launch);
  check_cuda(cuda().Launch(launch), launch.name, " on cuda:", device.index(), " (", launch.blocks,
             " blocks of ", launch.threads, " threads, ", launch.shared_bytes,
             " bytes of shared memory)");
}

std::shared_ptr<Device> make_cuda_device(CudaOptions options) {
  auto device = std::make_shared<CudaDevice>(std::move(options));
  load_kernels(*device);
  for (const auto* one = first_preparation(); one != nullptr; one = one->next)
    one->prepare(*device);
  return device;
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
