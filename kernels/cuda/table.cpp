#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lt_api.h"
#include "kernels/libraries.h"
#include "kernels/run.h"

namespace coshard::kernels {

namespace {

template <class Kernel>
void run_on(Device& device, const Kernel& args, std::string_view name) {
  if constexpr (HostOnly<Kernel>)
    fail(ErrorKind::Unsupported, str_cat("kernel ", name, " runs on the cpu alone, not on ",
                                         device.name(), "; move its inputs there (to)"));
  else
    cuda::run(static_cast<CudaDevice&>(device), args);
}

}  // namespace

extern const KernelTable cuda_kernels;
const KernelTable cuda_kernels = {DeviceKind::Cuda,
#define X(Kernel) [](Device& device, const Kernel& args) { run_on(device, args, #Kernel); },
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
