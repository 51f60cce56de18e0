#include "runtime/device/cuda/describe.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"

namespace coshard {
namespace {

std::string cuda_version_text(int version) {
  return str_cat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

int attribute_or_zero(cudaDeviceAttr which, int device) {
  int value = 0;
  return succeeded(cuda().DeviceGetAttribute(&value, which, device)) ? value : 0;
}

void set_problem(CudaPresence& found, cudaError_t status) {
  const std::string needed = cuda_version_text(found.runtime);
  if (found.driver == 0) {
    found.problem = "this machine has no CUDA driver (libcuda.so.1)";
    found.hint = str_cat("install the NVIDIA driver for ", needed,
                         " or newer; in a container, pass the GPU through");
  } else if (status == cudaErrorInsufficientDriver && found.driver < found.runtime) {
    found.problem = str_cat("the CUDA driver supports ", cuda_version_text(found.driver),
                            ", but this build needs ", needed);
    found.hint = "install a newer driver, or build with an older CUDA toolkit";
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    found.problem = "this machine has no CUDA device";
    found.hint = "check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES";
  } else {
    found.problem = str_cat("no usable CUDA driver: ", text_of(status));
    found.hint = "check `nvidia-smi` and the kernel log";
  }
}

void describe_place(DeviceDescription& one, int device) {
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "%04x:%02x:%02x.0",
                attribute_or_zero(cudaDevAttrPciDomainId, device),
                attribute_or_zero(cudaDevAttrPciBusId, device),
                attribute_or_zero(cudaDevAttrPciDeviceId, device));
  const NumaPlace numa = numa_place(address.data());
  one.numa_node = numa.node;
  one.place = str_cat("PCI ", address.data());
  if (numa.node >= 0) one.place += str_cat(", NUMA node ", numa.node, " (CPUs ", numa.cpus, ")");
  one.place += attribute_or_zero(cudaDevAttrEccEnabled, device) != 0 ? ", ECC on" : ", ECC off";
}

// "NAME=value", or what holds without it.
std::string variable_text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? str_cat(name, "=", value) : str_cat(otherwise, " (", name, " not set)");
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
  describe_place(one, device);
  return one;
}

}  // namespace

NumaPlace numa_place(const std::string& pci_address, const std::string& sysfs) {
  const std::string folder = str_cat(sysfs, "/bus/pci/devices/", pci_address);
  NumaPlace found;
  std::ifstream(folder + "/numa_node") >> found.node;
  if (found.node < 0) return {};
  std::ifstream(folder + "/local_cpulist") >> found.cpus;
  return found;
}

CudaPresence cuda_presence() {
  CudaPresence found;
  try {
    cuda();
  } catch (const Error& missing) {
    found.loaded = false;
    found.problem = missing.message();
    return found;
  }
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
  if (!found.loaded) return all;
  all.facts.emplace_back("driver", found.driver == 0 ? "none" : cuda_version_text(found.driver));
  all.facts.emplace_back("runtime", str_cat(cuda_version_text(found.runtime), ", built with ",
                                            cuda_version_text(CUDART_VERSION)));
  all.facts.emplace_back("modules", variable_text("CUDA_MODULE_LOADING", "loaded when first used"));
  all.facts.emplace_back("queues", variable_text("CUDA_DEVICE_MAX_CONNECTIONS", "8"));
  for (int device = 0; device < found.devices; ++device)
    all.devices.push_back(describe_one(device, found.devices));
  return all;
}

}  // namespace coshard
