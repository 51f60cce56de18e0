#include "runtime/device/cuda/describe.h"

#include <array>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"

namespace coshard {
namespace {

std::string cuda_version_text(int version) {
  return cat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

int attribute_or_zero(cudaDeviceAttr which, int device) {
  int value = 0;
  return succeeded(cuda().DeviceGetAttribute(&value, which, device)) ? value : 0;
}

void set_problem(CudaPresence& found, cudaError_t status) {
  const std::string needed = cuda_version_text(found.runtime);
  if (found.driver == 0) {
    found.problem = "this machine has no CUDA driver (libcuda.so.1)";
    found.hint = cat("install NVIDIA's driver for ", needed, " or newer, or pass the GPU through");
  } else if (status == cudaErrorInsufficientDriver && found.driver < found.runtime) {
    found.problem = cat("the CUDA driver serves ", cuda_version_text(found.driver),
                        " and this build needs ", needed);
    found.hint = "install a newer driver, or build with an older CUDA toolkit";
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    found.problem = "this machine has no CUDA device";
    found.hint = "look at `nvidia-smi -L` and at CUDA_VISIBLE_DEVICES";
  } else {
    found.problem = cat("no usable CUDA driver: ", text_of(status));
    found.hint = "look at `nvidia-smi` and at the kernel's log";
  }
}

// Leaves the calling thread's current device as it was.
DeviceDescription describe_one(int device, int count) {
  DeviceDescription one;
  std::array<char, 256> name{};
  one.name = succeeded(cuda().DeviceName(name.data(), static_cast<int>(name.size()), device))
                 ? name.data()
                 : "unknown";
  one.capability = 10 * attribute_or_zero(cudaDevAttrComputeCapabilityMajor, device) +
                   attribute_or_zero(cudaDevAttrComputeCapabilityMinor, device);
  one.multiprocessors = attribute_or_zero(cudaDevAttrMultiProcessorCount, device);
  int before = 0;
  if (succeeded(cuda().GetDevice(&before)) && succeeded(cuda().SetDevice(device))) {
    if (!succeeded(cuda().MemGetInfo(&one.free_memory, &one.memory)))
      one.free_memory = one.memory = 0;
    succeeded(cuda().SetDevice(before));
  }
  for (int peer = 0; peer < count; ++peer) {
    int reaches = peer == device ? 1 : 0;
    if (peer != device && !succeeded(cuda().DeviceCanAccessPeer(&reaches, device, peer)))
      reaches = 0;
    one.peers.push_back(reaches != 0);
  }
  return one;
}

}  // namespace

CudaPresence cuda_presence() {
  CudaPresence found;
  if (!succeeded(cuda().DriverGetVersion(&found.driver))) found.driver = 0;
  if (!succeeded(cuda().RuntimeGetVersion(&found.runtime))) found.runtime = CUDART_VERSION;
  const cudaError_t status = cuda().GetDeviceCount(&found.devices);
  if (!succeeded(status)) found.devices = 0;
  if (found.devices == 0) set_problem(found, status);
  return found;
}

BackendDescription describe_cuda() {
  const CudaPresence found = cuda_presence();
  BackendDescription all;
  all.problem = found.problem;
  all.hint = found.hint;
  all.facts.emplace_back("driver", found.driver == 0 ? "none" : cuda_version_text(found.driver));
  all.facts.emplace_back("runtime", cat(cuda_version_text(found.runtime), ", built with ",
                                        cuda_version_text(CUDART_VERSION)));
  for (int device = 0; device < found.devices; ++device)
    all.devices.push_back(describe_one(device, found.devices));
  return all;
}

}  // namespace coshard
