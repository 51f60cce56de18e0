#pragma once
// Runs one kernel of kernels/args.h on the back end of a device kind. Called on the rank's thread.
#include "kernels/cpu/cpu.h"
#include "runtime/device/device.h"
#include "runtime/error.h"

namespace coshard::kernels {

// Error{Unsupported} for a device kind without kernels in this build, or for a dtype the kernel
// does not take.
template <class Args>
void run(DeviceKind kind, const Args& args) {
  switch (kind) {
    case DeviceKind::Cpu: return cpu::run(args);
    default:
      fail(ErrorKind::Unsupported, cat("no kernels for device kind ", static_cast<int>(kind)));
  }
}

}  // namespace coshard::kernels
