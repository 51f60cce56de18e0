#pragma once
// The function table that every NCCL call goes through, and the NCCL version. Filled from libnccl,
// which is opened on first use, or in tests from a fake (tests/support/fake_cuda/fake_nccl). Chosen
// before the first communicator is created; any thread may call through it, one thread at a time
// per communicator.
#include <nccl.h>

#include <string>
#include <string_view>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7),
              "building needs nccl.h of NCCL 2.28.7 or newer; an older library will run");

// clang-format off
// Functions of every supported NCCL (2.14 and newer), and functions added later: null if the
// library lacks them.
#define COSHARD_NCCL_CALLS(X) \
  X(AllGather) X(AllReduce) X(Broadcast) X(CommAbort) X(CommDestroy) X(CommFinalize) \
  X(CommGetAsyncError) X(CommInitRankConfig) X(GetErrorString) X(GetLastError) X(GetUniqueId) \
  X(GetVersion) X(GroupEnd) X(GroupStart) X(Recv) X(Reduce) X(ReduceScatter) X(Send)
#define COSHARD_NCCL_LATER_CALLS(X) \
  X(AlltoAll) X(CommRevoke) X(CommSplit) X(CommWindowDeregister) X(CommWindowRegister) \
  X(MemAlloc) X(MemFree)
// clang-format on

namespace coshard {

struct NcclApi {
#define X(name) decltype(&::nccl##name) name = nullptr;
  COSHARD_NCCL_CALLS(X)
  COSHARD_NCCL_LATER_CALLS(X)
#undef X
};

// The table in use: libnccl's unless use_nccl() set another. Error{Unsupported}: the library is
// missing, or lacks a function; the message says which and what to do.
const NcclApi& nccl();
const NcclApi& real_nccl();
// For tests; null: libnccl again. The table must outlive every communicator.
void use_nccl(const NcclApi* table);

// Features by the first version that has them.
enum class NcclFeature : int {
  Config = 21400,           // ncclCommInitRankConfig, and ncclCommAbort while it connects
  Split = 21800,            // ncclCommSplit
  ImplicitOrder = 22600,    // NCCL_LAUNCH_ORDER_IMPLICIT
  CommName = 22703,         // the name that profilers show; CTAPolicy
  SymmetricWindow = 22703,  // ncclCommWindowRegister
  CopyEngine = 22803,       // collectives that take no SMs; ncclAlltoAll
  Revoke = 22807,           // ncclCommRevoke
};

int nccl_version();                          // of the loaded library; 22809 for 2.28.9
std::string nccl_version_text(int version);  // "2.28.9"
bool nccl_has(NcclFeature feature);
// Error{Unsupported} "what needs NCCL 2.28.3; this process runs 2.18.5 (built with 2.28.9)".
void require_nccl(NcclFeature feature, std::string_view what);

// "ncclRemoteError (6): remote process exited ...; last: ..."; `comm` may be null.
std::string nccl_text(ncclResult_t status, ncclComm_t comm);
constexpr bool nccl_went_well(ncclResult_t status) {
  return status == ncclSuccess || status == ncclInProgress;
}
// Throws Error{CommFailed} "what: text" unless the call succeeded or is in progress.
void check_nccl(ncclResult_t status, std::string_view what, ncclComm_t comm = nullptr);
// For destructors: one line on stderr when the call failed.
void log_nccl(ncclResult_t status, std::string_view what) noexcept;

}  // namespace coshard
