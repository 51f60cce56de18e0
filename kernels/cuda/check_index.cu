// Checks for indices out of range, and reports the first one found to the host.
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {
namespace {

template <class T>
struct CheckIndexKernel : PerElement {
  const T* index;
  std::int64_t count, limit, ignore;
  DeviceAssertKind kind;
  DeviceAssert* finding;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count; i += block.grid_threads()) {
      const std::int64_t value = index[i];
      if ((value < 0 || value >= limit) && value != ignore)
        leave(block, finding, kind, value, limit);
    }
  }
};

}  // namespace

void run(CudaDevice& device, const CheckIndex& args) {
  with_index(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    CheckIndexKernel<T> kernel{};
    kernel.index = as<T>(args.index);
    kernel.count = args.count;
    kernel.limit = args.limit;
    kernel.ignore = args.ignore;
    kernel.kind = args.kind;
    kernel.finding = device.finding();
    launch_elements(device, "check index", kernel, args.count);
  });
}

}  // namespace coshard::kernels::cuda
