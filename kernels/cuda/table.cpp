#include "kernels/cuda/cuda.h"
#include "kernels/libraries.h"
#include "kernels/run.h"

namespace coshard::kernels {

const KernelTable cuda_kernels = {DeviceKind::Cuda,
#define X(Kernel) \
  [](Device& device, const Kernel& args) { cuda::run(static_cast<CudaDevice&>(device), args); },
                                  COSHARD_KERNELS(X)
#undef X
};

Libraries cuda_libraries() { return {}; }

}  // namespace coshard::kernels
