#include "runtime/device/cuda/check.h"

#include <cstdio>

#include "runtime/device/cuda/api.h"

namespace coshard {

std::string text_of(cudaError_t status) {
  return str_cat(cuda().GetErrorName(status), " (", static_cast<int>(status),
                 "): ", cuda().GetErrorString(status));
}

bool succeeded(cudaError_t status) noexcept {
  if (status == cudaSuccess) [[likely]]
    return true;
  cuda().GetLastError();
  return false;
}

void throw_cuda(cudaError_t status, const std::string& what) {
  fail(ErrorKind::DeviceFailed, str_cat(what, ": ", text_of(status)));
}

void log_cuda(cudaError_t status, const char* what) noexcept {
  // During process exit the driver is already unloaded; nothing is lost.
  if (succeeded(status) || status == cudaErrorCudartUnloading) return;
  std::fprintf(stderr, "coshard: %s: %s\n", what, cuda().GetErrorString(status));
}

}  // namespace coshard
