#pragma once
// The kernels of the device `sim` without data.
#include "kernels/run.h"

namespace coshard::kernels {

// Call before running kernels on a VirtualDevice (virtual_device.h). Idempotent.
void add_sim_kernels();

}  // namespace coshard::kernels
