#include "kernels/cpu/cpu.h"
#include "kernels/libraries.h"
#include "kernels/run.h"

namespace coshard::kernels {

Libraries relay_libraries() { return {}; }

extern const KernelTable relay_kernels;
const KernelTable relay_kernels = {DeviceKind("relay"),
#define X(Kernel) [](Device&, const Kernel& args) { cpu::run(args); },
                                   COSHARD_KERNELS(X)
#undef X
};

}  // namespace coshard::kernels
