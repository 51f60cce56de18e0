#pragma once
// Runs a kernel body as a device would, on the CPU: block after block in a random order, with each
// thread of a block that synchronizes as a fiber. A barrier yields to the other threads, which
// continue in an order that differs per round and seed; a shuffle writes its lane, waits at a warp
// barrier, reads the other lane and waits again. Shared memory starts full of NaN bytes. So a
// missing barrier shows as a wrong number for some seed; one that only some threads reach fails.
#include <cstdint>
#include <stdexcept>

#include "runtime/device/cuda/launch.h"

namespace coshard::testing {

// Throws std::runtime_error if threads wait for threads that have ended, or if a kernel
// synchronizes that declares not to.
void emulate(const CudaLaunch& launch, std::uint64_t seed);

}  // namespace coshard::testing
