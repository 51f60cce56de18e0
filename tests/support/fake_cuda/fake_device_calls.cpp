// Devices, peers and errors.
#include <cstdio>
#include <limits>

#include "tests/support/fake_cuda/fake_calls.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

constexpr int kOldestDriver = CUDART_VERSION / 1000 * 1000;  // that supports this runtime

bool is_device(int device) { return device >= 0 && device < driver().device_count(); }

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
  if (!is_device(device)) return status(cudaErrorInvalidDevice);
  FakeDriver::current_device() = device;
  return cudaSuccess;
}

cudaError_t get_attribute(int* value, cudaDeviceAttr which, int device) {
  ENTER("DeviceGetAttribute");
  if (!is_device(device)) return status(cudaErrorInvalidDevice);
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrPciDomainId: *value = 0xfade; break;  // no device of this host
    case cudaDevAttrPciBusId: *value = 0x3b + device; break;
    case cudaDevAttrEccEnabled: *value = 1; break;
    case cudaDevAttrMaxPitch: *value = std::numeric_limits<int>::max(); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t can_access_peer(int* possible, int device, int peer) {
  ENTER("DeviceCanAccessPeer");
  if (!is_device(device) || !is_device(peer)) return status(cudaErrorInvalidDevice);
  *possible = driver().can_reach(device, peer) ? 1 : 0;
  return cudaSuccess;
}

// cuda_runtime_api.h, cudaDeviceEnablePeerAccess: InvalidDevice where cudaDeviceCanAccessPeer says
// no, InvalidValue for flags. Whether it waits is not documented; it maps all memory of the peer.
cudaError_t enable_peer(int peer, unsigned flags) {
  ENTER("DeviceEnablePeerAccess");
  const int device = FakeDriver::current_device();
  if (flags != 0) return status(cudaErrorInvalidValue);
  if (!is_device(peer) || !driver().can_reach(device, peer)) return status(cudaErrorInvalidDevice);
  if (!driver().enable_peer(device, peer)) return status(cudaErrorPeerAccessAlreadyEnabled);
  return waited(driver().wait_for_device(device, "cudaDeviceEnablePeerAccess"));
}

cudaError_t priority_range(int* lowest, int* highest) {
  ENTER("DeviceGetStreamPriorityRange");
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

cudaError_t device_synchronize() {
  ENTER("DeviceSynchronize");
  const int device = FakeDriver::current_device();
  const bool over = driver().wait_for_device(device, "cudaDeviceSynchronize");
  if (over) driver().observe_device(device);
  return waited(over);
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

cudaError_t device_name(char* name, int length, int) {
  ENTER("DeviceName");
  std::snprintf(name, static_cast<std::size_t>(length), "fake device");
  return cudaSuccess;
}

const char* error_name(cudaError_t error) { return cudaGetErrorName(error); }
const char* error_string(cudaError_t error) { return cudaGetErrorString(error); }
cudaError_t get_last_error() { return std::exchange(last_error(), cudaSuccess); }

}  // namespace

void add_device_calls(CudaApi& api) {
  api.DeviceCanAccessPeer = can_access_peer;
  api.DeviceEnablePeerAccess = enable_peer;
  api.DeviceGetAttribute = get_attribute;
  api.DeviceGetStreamPriorityRange = priority_range;
  api.DeviceName = device_name;
  api.DeviceSynchronize = device_synchronize;
  api.DriverGetVersion = get_driver_version;
  api.GetDevice = get_device;
  api.GetDeviceCount = get_device_count;
  api.GetErrorName = error_name;
  api.GetErrorString = error_string;
  api.GetLastError = get_last_error;
  api.RuntimeGetVersion = get_runtime_version;
  api.SetDevice = set_device;
}

}  // namespace coshard::testing
