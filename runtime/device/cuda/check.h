#pragma once
// What becomes of a failed CUDA call, in three forms. Each clears the error that CUDA remembers, so
// that it does not come out of a later call. Any thread.
#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace coshard {

// "cudaErrorMemoryAllocation (2): out of memory"
std::string text_of(cudaError_t status);
// Throws Error{DeviceFailed} "what: text" unless the call succeeded.
void check_cuda(cudaError_t status, std::string_view what);
// Whether the call succeeded; for callers that know what to do about it.
bool succeeded(cudaError_t status) noexcept;
// For destructors: one line on stderr when the call failed.
void log_cuda(cudaError_t status, const char* what) noexcept;

}  // namespace coshard
