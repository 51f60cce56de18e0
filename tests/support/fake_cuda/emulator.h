#pragma once
// Runs a kernel body as a device would, on the CPU: block after block in a drawn order, and each
// thread of a block that meets as a fiber. A barrier gives way to the other threads, which go on in
// an order that differs per round and seed; a shuffle is write lane, barrier of the warp, read
// lane, barrier. Shared memory starts full of NaN bytes. So a missing barrier shows as a wrong
// number for some seed, and one that only some threads reach as an error.
#include <cstdint>
#include <stdexcept>

#include "runtime/device/cuda/launch.h"

namespace coshard::testing {

// std::runtime_error: threads that wait for threads that have ended, or a meeting in a kernel that
// says its threads never meet.
void emulate(const CudaLaunch& launch, std::uint64_t seed);

}  // namespace coshard::testing
