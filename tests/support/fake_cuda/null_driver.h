#pragma once
// A CUDA driver that does nothing and costs next to nothing: each call returns success at once,
// memory is memory of the host, kernels and copies do not run. What is timed on it is the host work
// of the library alone. One device, the thread's current one; any thread.

namespace coshard::testing {

// Makes coshard's calls to CUDA and cuBLASLt go here. No device may live.
void install_null_driver();

}  // namespace coshard::testing
