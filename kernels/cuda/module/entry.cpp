// The module's side: its entry point, and the runtime functions that the kernels call.
#include <coshard/runtime/error.h>
#include <coshard/version.h>
#include "kernels/cuda/module/module.h"

namespace coshard {
namespace {

const kernels::CudaHost* host = nullptr;

}  // namespace

void fail(ErrorKind kind, const std::string& message) {
  host->fail_(kind, message);
  __builtin_unreachable();
}
const CudaApi& cuda() { return host->cuda_(); }
void launch_on(CudaDevice& device, CudaLaunch launch) { host->launch_on_(device, launch); }

}  // namespace coshard

extern "C" [[gnu::visibility("default")]] const coshard::kernels::CudaModule* coshard_cuda_module(
    const coshard::kernels::CudaHost* of) {
  using namespace coshard;
  static constexpr kernels::CudaModule module = {
      COSHARD_VERSION,    kernels::kCudaLayout,   &real_cuda,
      &reduce_on_device,  &copy_rows_on_device,   &first_kernel,
      &first_preparation, &kernels::cuda_kernels, &kernels::cuda_libraries,
  };
  host = of;
  return &module;
}
