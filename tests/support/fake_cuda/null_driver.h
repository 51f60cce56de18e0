#pragma once
// A CUDA driver that does nothing at almost no cost: each call returns success at once, memory is
// host memory, kernels and copies do not run. Timings on it are the library's host work alone. One
// device, the thread's current one; any thread.

namespace coshard::testing {

// Redirects coshard's calls to CUDA and cuBLASLt here. No device may exist.
void install_null_driver();

}  // namespace coshard::testing
