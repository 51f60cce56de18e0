#pragma once
// The kernels of the device `sim` without data.
#include "kernels/run.h"

namespace coshard::kernels {

// Before kernels are run on a VirtualDevice (virtual_device.h). May be called again.
void add_sim_kernels();

}  // namespace coshard::kernels
