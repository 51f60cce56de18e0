#include "kernels/cpu/cpu.h"
#include "kernels/run.h"

namespace coshard::kernels {

extern const KernelTable cpu_kernels;
const KernelTable cpu_kernels = {DeviceKind::Cpu,
#define X(Kernel) [](Device&, const Kernel& args) { cpu::run(args); },
                                 COSHARD_KERNELS(X)
#undef X
};

}  // namespace coshard::kernels
