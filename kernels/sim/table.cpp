#include "kernels/sim/table.h"

#include "kernels/sim/kernel_work.h"
#include "runtime/device/sim/virtual_device.h"

namespace coshard::kernels {
namespace {

const KernelTable sim_kernels = {kSimDevice,
#define X(Kernel)                                           \
  [](Device& device, const Kernel& args) {                  \
    static_cast<VirtualDevice&>(device).run(work_of(args)); \
  },
                                 COSHARD_KERNELS(X)
#undef X
};

}  // namespace

void add_sim_kernels() { add_kernels(sim_kernels); }

}  // namespace coshard::kernels
