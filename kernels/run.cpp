#include "kernels/run.h"

#include <array>

namespace coshard::kernels {
namespace {

#define X(name) &name##_kernels,
constexpr std::array kTables = {COSHARD_KERNEL_BACKENDS(X)};
#undef X

}  // namespace

const KernelTable& kernels_of(DeviceKind kind) {
  for (const KernelTable* table : kTables)
    if (table->kind == kind) return *table;
  fail(ErrorKind::Unsupported,
       str_cat("this build has no kernels for device '", to_string(kind), "'"));
}

}  // namespace coshard::kernels
