// libcoshard's side: functions that other builds link in come from the module, which is opened on
// first use.
#include <unistd.h>

#include <coshard/runtime/error.h>
#include <coshard/version.h>
#include "kernels/cuda/module/module.h"
#include "runtime/shared_library.h"

namespace coshard {
namespace kernels {
namespace {

constexpr const char* kFile = "libcoshard_cuda.so";

constexpr CudaHost kHost = {&fail, &coshard::cuda, &launch_on};

// Next to the library that contains this code; otherwise the name, for the loader to search.
std::string where() {
  std::string beside = file_of(&kHost);
  beside = beside.substr(0, beside.rfind('/') + 1) + kFile;
  return access(beside.c_str(), R_OK) == 0 ? beside : kFile;
}

const CudaModule& module() {
  static const CudaModule& opened = open_cuda_module(where());
  return opened;
}

}  // namespace

const CudaModule& open_cuda_module(const std::string& name) {
  const SharedLibrary library(
      name,
      "the cuda device needs it, from the same build as libcoshard, beside that or in a folder of "
      "LD_LIBRARY_PATH");
  CudaEntry entry = nullptr;
  library.require(entry, kCudaEntry);
  const CudaModule* found = entry(&kHost);
  if (std::string_view(found->version) != COSHARD_VERSION)
    fail(ErrorKind::Unsupported,
         str_cat(name, " is of coshard ", found->version, " and libcoshard of ", COSHARD_VERSION,
                 ": install both from one build"));
  if (found->layout != kCudaLayout)
    fail(ErrorKind::Unsupported,
         str_cat(name, " and libcoshard are of different builds of coshard ", COSHARD_VERSION,
                 ": install both from one build"));
  return *found;
}

const KernelTable cuda_kernels = {DeviceKind::Cuda,
#define X(Kernel) \
  [](Device& device, const Kernel& args) { module().kernels->Kernel##_(device, args); },
                                  COSHARD_KERNELS(X)
#undef X
};

// A missing module is reported by the device.
Libraries cuda_libraries() {
  try {
    return module().libraries();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace kernels

const CudaApi& real_cuda() { return kernels::module().calls(); }

void reduce_on_device(CudaDevice& device, DType dtype, Reduce reduce,
                      std::span<const void* const> sources, void* target, std::int64_t count,
                      void* stream) {
  kernels::module().reduce(device, dtype, reduce, sources, target, count, stream);
}

void copy_rows_on_device(CudaDevice& device, std::span<const StridedCopy> copies, void* stream) {
  kernels::module().copy_rows(device, copies, stream);
}

const KernelEntry* first_kernel() noexcept { return kernels::module().first_kernel(); }
const DevicePreparation* first_preparation() noexcept {
  return kernels::module().first_preparation();
}

}  // namespace coshard
