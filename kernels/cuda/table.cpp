#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lt_api.h"
#include "kernels/libraries.h"
#include "kernels/run.h"

namespace coshard::kernels {

extern const KernelTable cuda_kernels;
const KernelTable cuda_kernels = {DeviceKind::Cuda,
#define X(Kernel) \
  [](Device& device, const Kernel& args) { cuda::run(static_cast<CudaDevice&>(device), args); },
                                  COSHARD_KERNELS(X)
#undef X
};

Libraries cuda_libraries() {
  const auto text = [](std::size_t version) {
    return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  };
  return {{"cuBLASLt", text(cublas_lt().GetVersion()) + ", built with " + text(CUBLAS_VERSION)}};
}

}  // namespace coshard::kernels
