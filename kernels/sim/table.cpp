#include "kernels/sim/table.h"

#include "kernels/sim/kernel_work.h"
#include "runtime/device/sim/virtual_device.h"

namespace coshard::kernels {
namespace {

template <class Kernel>
void run_on(Device& device, const Kernel& args, std::string_view name) {
  auto& virtual_device = static_cast<VirtualDevice&>(device);
  if constexpr (TellsBytes<Kernel>)
    virtual_device.run({.name = name, .dtype = args.dtype, .bytes = args.bytes()});
  else
    virtual_device.run(work_of(args));
}

const KernelTable sim_kernels = {kSimDevice,
#define X(Kernel) [](Device& device, const Kernel& args) { run_on(device, args, #Kernel); },
                                 COSHARD_KERNELS(X)
#undef X
};

}  // namespace

void add_sim_kernels() { add_kernels(sim_kernels); }

}  // namespace coshard::kernels
