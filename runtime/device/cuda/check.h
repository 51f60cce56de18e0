#pragma once
// Handling of a failed CUDA call, in three forms. Each clears CUDA's last error, so that a later
// call does not return it. Any thread.
#include <cuda_runtime_api.h>

#include <string>

#include <coshard/runtime/error.h>

namespace coshard {

// "cudaErrorMemoryAllocation (2): out of memory"
std::string text_of(cudaError_t status);
// Whether the call succeeded; for callers that handle the failure themselves.
bool succeeded(cudaError_t status) noexcept;
// Error{DeviceFailed} "what: text".
[[noreturn]] void throw_cuda(cudaError_t status, const std::string& what);
// Calls throw_cuda() unless the call succeeded. The operands of `what` are joined only on failure:
// thousands of launches and events are checked.
template <class... What>
void check_cuda(cudaError_t status, const What&... what) {
  if (!succeeded(status)) [[unlikely]]
    throw_cuda(status, str_cat(what...));
}
// For destructors: one line on stderr when the call failed.
void log_cuda(cudaError_t status, const char* what) noexcept;

}  // namespace coshard
