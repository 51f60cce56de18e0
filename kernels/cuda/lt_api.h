#pragma once
// The function table that every cuBLASLt call goes through, and error handling. Filled from the
// library, which is opened on first use, or in tests from a fake (tests/support/fake_cuda). Chosen
// before its first use by a device and not changed while that device lives; any thread may call
// through it.
#include <cublasLt.h>

#include <string>

// clang-format off
#define COSHARD_LT_CALLS(X) \
  X(Create) X(Destroy) X(GetStatusName) X(GetStatusString) X(GetVersion) \
  X(Matmul) X(MatmulAlgoGetHeuristic) \
  X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute) \
  X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) \
  X(MatrixLayoutCreate) X(MatrixLayoutDestroy) X(MatrixLayoutSetAttribute)
// clang-format on

namespace coshard {

struct CublasLtApi {
#define X(name) decltype(&::cublasLt##name) name;
  COSHARD_LT_CALLS(X)
#undef X
};

// The table in use: the library's unless use_cublas_lt() set another. Error{Unsupported}: the
// library is missing, or lacks a function; the message says which and what to do.
const CublasLtApi& cublas_lt();
const CublasLtApi& real_cublas_lt();
// For tests; null: the library again. The table must outlive every device.
void use_cublas_lt(const CublasLtApi* table);

// "CUBLAS_STATUS_NOT_SUPPORTED (15)"
std::string text_of(cublasStatus_t status);
// Whether the call succeeded. Clears CUDA's last error if it did not.
bool succeeded(cublasStatus_t status) noexcept;
// Throws Error{DeviceFailed} "what: text" unless the call succeeded.
void check_lt(cublasStatus_t status, const char* what);
// For destructors: one line on stderr when the call failed.
void log_lt(cublasStatus_t status, const char* what) noexcept;

}  // namespace coshard
