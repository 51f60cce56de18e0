#include "kernels/cuda/lt_api.h"

#include <cstdio>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/shared_library.h"

namespace coshard {
namespace {

const CublasLtApi* lt_in_use = nullptr;  // null: the library; written before any device is created

}  // namespace

const CublasLtApi& real_cublas_lt() {
  static const CublasLtApi table = [] {
    const SharedLibrary library(str_cat("libcublasLt.so.", CUBLAS_VER_MAJOR),
                                str_cat("the cuda device needs cuBLASLt of CUDA ", CUBLAS_VER_MAJOR,
                                        ", in a folder of the system's or of LD_LIBRARY_PATH"));
    CublasLtApi api;
#define X(name) library.require(api.name, "cublasLt" #name);
    COSHARD_LT_CALLS(X)
#undef X
    return api;
  }();
  return table;
}

const CublasLtApi& cublas_lt() { return lt_in_use != nullptr ? *lt_in_use : real_cublas_lt(); }
void use_cublas_lt(const CublasLtApi* table) { lt_in_use = table; }

std::string text_of(cublasStatus_t status) {
  return str_cat(cublas_lt().GetStatusName(status), " (", static_cast<int>(status), ")");
}

bool succeeded(cublasStatus_t status) noexcept {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return true;
  cuda().GetLastError();
  return false;
}

void check_lt(cublasStatus_t status, const char* what) {
  if (!succeeded(status)) [[unlikely]]
    fail(ErrorKind::DeviceFailed, str_cat(what, ": ", text_of(status)));
}

void log_lt(cublasStatus_t status, const char* what) noexcept {
  if (succeeded(status)) return;
  std::fprintf(stderr, "coshard: %s: %s\n", what, cublas_lt().GetStatusName(status));
}

}  // namespace coshard
