#pragma once
// What becomes of a failed CUDA call, in three forms. Each clears the error that CUDA remembers, so
// that it does not come out of a later call. Any thread.
#include <cuda_runtime_api.h>

#include <string>

#include <coshard/runtime/error.h>

namespace coshard {

// "cudaErrorMemoryAllocation (2): out of memory"
std::string text_of(cudaError_t status);
// Whether the call succeeded; for callers that know what to do about it.
bool succeeded(cudaError_t status) noexcept;
// Error{DeviceFailed} "what: text".
[[noreturn]] void throw_cuda(cudaError_t status, const std::string& what);
// Throws that unless the call succeeded. The operands of `what` are joined only then: launches and
// events are checked by the thousand.
template <class... What>
void check_cuda(cudaError_t status, const What&... what) {
  if (!succeeded(status)) [[unlikely]]
    throw_cuda(status, cat(what...));
}
// For destructors: one line on stderr when the call failed.
void log_cuda(cudaError_t status, const char* what) noexcept;

}  // namespace coshard
