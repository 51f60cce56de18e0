// The CUDA runtime's functions on the fake driver.
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/device/cuda/api.h"
#include "tests/support/fake_cuda/emulator.h"
#include "tests/support/fake_cuda/fake_cublas_lt.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/fake_graphs.h"

namespace coshard::testing {
namespace {

FakeDriver& driver() { return FakeDriver::get(); }

thread_local cudaError_t last_error = cudaSuccess;
constexpr int kOldestDriver = CUDART_VERSION / 1000 * 1000;  // that serves this runtime

cudaError_t status(int code) {
  const auto error = static_cast<cudaError_t>(code);
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Counts the call; returns from the function when a fault says so.
#define ENTER(name)                                       \
  if (const int fault = driver().enter(name); fault != 0) \
  return status(fault == FakeDriver::kSkip ? 0 : fault)

struct FakeEvent {
  int device = 0;
  FakeDriver::OpRef op;  // null: never recorded, which counts as complete
};

cudaError_t get_device_count(int* count) {
  ENTER("GetDeviceCount");
  *count = 0;
  if (driver().driver_version() < kOldestDriver) return status(cudaErrorInsufficientDriver);
  *count = driver().device_count();
  return status(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t get_device(int* device) {
  ENTER("GetDevice");
  *device = FakeDriver::current_device();
  return cudaSuccess;
}

cudaError_t set_device(int device) {
  ENTER("SetDevice");
  if (device < 0 || device >= driver().device_count()) return status(cudaErrorInvalidDevice);
  FakeDriver::current_device() = device;
  return cudaSuccess;
}

cudaError_t get_attribute(int* value, cudaDeviceAttr which, int) {
  ENTER("DeviceGetAttribute");
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t can_access_peer(int* possible, int, int) {
  ENTER("DeviceCanAccessPeer");
  *possible = driver().peer_access() ? 1 : 0;
  return cudaSuccess;
}

cudaError_t enable_peer(int, unsigned) {
  ENTER("DeviceEnablePeerAccess");
  return cudaSuccess;
}

cudaError_t priority_range(int* lowest, int* highest) {
  ENTER("DeviceGetStreamPriorityRange");
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

cudaError_t device_synchronize() {
  ENTER("DeviceSynchronize");
  driver().drain();
  return cudaSuccess;
}

cudaError_t get_driver_version(int* value) {
  ENTER("DriverGetVersion");
  *value = driver().driver_version();
  return cudaSuccess;
}

cudaError_t get_runtime_version(int* value) {
  ENTER("RuntimeGetVersion");
  *value = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t event_create(cudaEvent_t* event, unsigned) {
  ENTER("EventCreateWithFlags");
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent{FakeDriver::current_device(), nullptr});
  return cudaSuccess;
}

FakeEvent& event_of(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

cudaError_t event_destroy(cudaEvent_t event) {
  ENTER("EventDestroy");
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
  ENTER("EventRecord");
  FakeDriver::Stream& on = driver().stream(stream);
  if (event_of(event).device != on.device) return status(cudaErrorInvalidResourceHandle);
  event_of(event).op = driver().enqueue(on, FakeDriver::Work());
  return cudaSuccess;
}

cudaError_t event_query(cudaEvent_t event) {
  ENTER("EventQuery");
  const FakeDriver::OpRef op = event_of(event).op;
  if (op == nullptr) return cudaSuccess;
  if (const int error = fake_graphs::ask(op); error != 0) return status(error);
  const auto held = driver().lock();
  if (op->done) return cudaSuccess;
  if (driver().patient()) return status(cudaErrorNotReady);
  return status(driver().force(op) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t stream_create(cudaStream_t* stream, unsigned, int priority) {
  ENTER("StreamCreateWithPriority");
  *stream =
      reinterpret_cast<cudaStream_t>(driver().make_stream(FakeDriver::current_device(), priority));
  return cudaSuccess;
}

cudaError_t stream_destroy(cudaStream_t stream) {
  ENTER("StreamDestroy");
  driver().destroy(driver().stream(stream));
  return cudaSuccess;
}

cudaError_t stream_query(cudaStream_t stream) {
  ENTER("StreamQuery");
  const auto held = driver().lock();
  const auto last = driver().last_of(driver().stream(stream));
  if (last == nullptr) return cudaSuccess;
  if (driver().patient()) return status(cudaErrorNotReady);
  return status(driver().force(last) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t stream_synchronize(cudaStream_t stream) {
  ENTER("StreamSynchronize");
  driver().wait(driver().last_of(driver().stream(stream)));
  return cudaSuccess;
}

cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER("StreamWaitEvent");
  if (event_of(event).op == nullptr) return cudaSuccess;
  const int captured = fake_graphs::wait(driver().stream(stream), event_of(event).op);
  if (captured != fake_graphs::kEager) return status(captured);
  FakeDriver::Op op;
  op.after = {event_of(event).op};
  driver().enqueue(driver().stream(stream), std::move(op));
  return cudaSuccess;
}

cudaError_t wait_value(cudaStream_t stream, const std::uint64_t* at, std::uint64_t value) {
  ENTER("StreamWaitValue");
  FakeDriver::Op op;
  op.waits_for = at;
  op.ready = [at, value] {
    const std::uint64_t now = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return static_cast<std::int64_t>(now - value) >= 0;
  };
  driver().enqueue(driver().stream(stream), std::move(op));
  return cudaSuccess;
}

cudaError_t write_value(cudaStream_t stream, std::uint32_t* at, std::uint32_t value) {
  ENTER("StreamWriteValue");
  FakeDriver::Op op;
  op.writes = at;
  op.work = [at, value] { __atomic_store_n(at, value, __ATOMIC_RELEASE); };
  driver().enqueue(driver().stream(stream), std::move(op));
  return cudaSuccess;
}

cudaError_t allocate_memory(void** data, std::size_t bytes) {
  ENTER("Malloc");
  *data = driver().allocate(bytes, true);
  return status(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t free_memory(void* data) {
  ENTER("Free");
  driver().drain();
  return status(driver().release(data) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t host_alloc(void** data, std::size_t bytes, unsigned) {
  ENTER("HostAlloc");
  *data = driver().allocate(bytes, false);
  return status(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t free_host(void* data) {
  ENTER("FreeHost");
  return status(driver().release(data) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t memory_info(std::size_t* left, std::size_t* all) {
  ENTER("MemGetInfo");
  *all = driver().memory_limit();
  *left = *all - driver().memory_in_use();
  return cudaSuccess;
}

// Pageable memory is read before the call returns, and is written by then.
cudaError_t copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                      std::size_t bytes, std::size_t rows, cudaStream_t stream) {
  std::vector<char> snapshot;
  const bool pageable = !driver().knows(from);
  if (driver().stream(stream).capture != nullptr && (pageable || !driver().knows(to))) {
    driver().complain("pageable memory in a captured copy");  // it would be read at each launch
    return status(cudaErrorStreamCaptureUnsupported);
  }
  if (pageable) {
    driver().enter("Memcpy of pageable memory");
    snapshot.assign(static_cast<const char*>(from),
                    static_cast<const char*>(from) + from_pitch * (rows - 1) + bytes);
  }
  const auto op = driver().enqueue(driver().stream(stream), [=, held = std::move(snapshot)] {
    const char* source = pageable ? held.data() : static_cast<const char*>(from);
    for (std::size_t r = 0; r < rows; ++r)
      std::memmove(static_cast<char*>(to) + r * to_pitch, source + r * from_pitch, bytes);
  });
  if (!driver().knows(to)) {
    driver().enter("Memcpy of pageable memory");
    driver().wait(op);
  }
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  ENTER("MemcpyAsync");
  if (kind == cudaMemcpyDeviceToHost) driver().enter("Memcpy to the host");
  return bytes == 0 ? cudaSuccess : copy_rows(to, bytes, from, bytes, bytes, 1, stream);
}

cudaError_t copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                    std::size_t bytes, std::size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  ENTER("Memcpy2DAsync");
  if (bytes == 0 || rows == 0) return cudaSuccess;
  return copy_rows(to, to_pitch, from, from_pitch, bytes, rows, stream);
}

cudaError_t set_memory(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  ENTER("MemsetAsync");
  driver().enqueue(driver().stream(stream), [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t device_name(char* name, int length, int) {
  ENTER("DeviceName");
  std::snprintf(name, static_cast<std::size_t>(length), "fake device");
  return cudaSuccess;
}

cudaError_t launch_kernel(const CudaLaunch& launch) {
  ENTER("Launch");
  if (launch.threads == 0 || launch.threads > 1024 || launch.kernel_bytes > 4096 ||
      launch.shared_bytes > 227 * 1024)
    return status(cudaErrorInvalidConfiguration);
  if (driver().stream(launch.stream).device != FakeDriver::current_device())
    return status(cudaErrorInvalidResourceHandle);
  CudaLaunch call = launch;
  const auto* bytes = static_cast<const char*>(launch.kernel);
  std::vector<char> kernel(bytes, bytes + launch.kernel_bytes);
  driver().enqueue(driver().stream(launch.stream), [call, held = std::move(kernel)]() mutable {
    call.kernel = held.data();
    try {
      emulate(call, driver().draw());
    } catch (const std::exception& error) {
      driver().complain(std::string(call.name) + ": " + error.what());
    }
  });
  return cudaSuccess;
}

const char* error_name(cudaError_t error) { return cudaGetErrorName(error); }
const char* error_string(cudaError_t error) { return cudaGetErrorString(error); }
cudaError_t get_last_error() { return std::exchange(last_error, cudaSuccess); }

}  // namespace

void FakeDriver::install(std::uint64_t seed, int devices) {
  static const CudaApi table = [] {
    CudaApi api{};
    api.DeviceCanAccessPeer = can_access_peer;
    api.DeviceEnablePeerAccess = enable_peer;
    api.DeviceGetAttribute = get_attribute;
    api.DeviceGetStreamPriorityRange = priority_range;
    api.DeviceSynchronize = device_synchronize;
    api.DriverGetVersion = get_driver_version;
    api.EventCreateWithFlags = event_create;
    api.EventDestroy = event_destroy;
    api.EventQuery = event_query;
    api.EventRecord = event_record;
    api.Free = free_memory;
    api.FreeHost = free_host;
    api.GetDevice = get_device;
    api.GetDeviceCount = get_device_count;
    api.GetErrorName = error_name;
    api.GetErrorString = error_string;
    api.GetLastError = get_last_error;
    api.HostAlloc = host_alloc;
    api.Malloc = allocate_memory;
    api.MemGetInfo = memory_info;
    api.Memcpy2DAsync = copy_2d;
    api.MemcpyAsync = copy;
    api.MemsetAsync = set_memory;
    api.RuntimeGetVersion = get_runtime_version;
    api.SetDevice = set_device;
    api.StreamCreateWithPriority = stream_create;
    api.StreamDestroy = stream_destroy;
    api.StreamQuery = stream_query;
    api.StreamSynchronize = stream_synchronize;
    api.StreamWaitEvent = stream_wait_event;
    api.DeviceName = device_name;
    api.Launch = launch_kernel;
    api.StreamWaitValue = wait_value;
    api.StreamWriteValue = write_value;
    fake_graphs::add_calls(api);
    return api;
  }();
  reseed(seed);
  devices_ = devices;
  use_cuda(&table);
  install_cublas_lt();
}

}  // namespace coshard::testing
