#include "runtime/comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstdio>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

const NcclApi* nccl_in_use = nullptr;  // null: libnccl; written before any communicator is made

std::string_view name_of(ncclResult_t status) {
  switch (status) {
    case ncclSuccess: return "ncclSuccess";
    case ncclUnhandledCudaError: return "ncclUnhandledCudaError";
    case ncclSystemError: return "ncclSystemError";
    case ncclInternalError: return "ncclInternalError";
    case ncclInvalidArgument: return "ncclInvalidArgument";
    case ncclInvalidUsage: return "ncclInvalidUsage";
    case ncclRemoteError: return "ncclRemoteError";
    case ncclInProgress: return "ncclInProgress";
    default: return "an NCCL error";
  }
}

}  // namespace

const NcclApi& real_nccl() {
  static const NcclApi table = [] {
    NcclApi api;
#define X(name) api.name = &::nccl##name;
    COSHARD_NCCL_CALLS(X)
#undef X
#define X(name) api.name = reinterpret_cast<decltype(api.name)>(dlsym(RTLD_DEFAULT, "nccl" #name));
    COSHARD_NCCL_LATER_CALLS(X)
#undef X
    return api;
  }();
  return table;
}

const NcclApi& nccl() { return nccl_in_use != nullptr ? *nccl_in_use : real_nccl(); }
void use_nccl(const NcclApi* table) { nccl_in_use = table; }

int nccl_version() {
  int version = 0;
  check_nccl(nccl().GetVersion(&version), "ncclGetVersion");
  return version;
}

std::string nccl_version_text(int version) {
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

bool nccl_has(NcclFeature feature) { return nccl_version() >= static_cast<int>(feature); }

void require_nccl(NcclFeature feature, std::string_view what) {
  if (nccl_has(feature)) return;
  fail(ErrorKind::Unsupported, cat(what, " need", what.ends_with('s') ? "" : "s", " NCCL ",
                                   nccl_version_text(static_cast<int>(feature)),
                                   "; this process runs ", nccl_version_text(nccl_version()),
                                   " (built with ", nccl_version_text(NCCL_VERSION_CODE), ")"));
}

std::string nccl_text(ncclResult_t status, ncclComm_t comm) {
  std::string text = cat(name_of(status), " (", static_cast<int>(status), ")");
  if (const char* meaning = nccl().GetErrorString(status)) text += cat(": ", meaning);
  if (const char* last = nccl().GetLastError(comm); last != nullptr && *last != 0)
    text += cat("; last: ", last);
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return text;
}

void check_nccl(ncclResult_t status, std::string_view what, ncclComm_t comm) {
  if (!nccl_went_well(status)) [[unlikely]]
    fail(ErrorKind::CommFailed, cat(what, ": ", nccl_text(status, comm)));
}

void log_nccl(ncclResult_t status, std::string_view what) noexcept {
  if (nccl_went_well(status)) return;
  std::fprintf(stderr, "coshard: %.*s: NCCL error %d\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(status));
}

}  // namespace coshard
