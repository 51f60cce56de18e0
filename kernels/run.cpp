#include "kernels/run.h"

#include <array>
#include <atomic>

#include "kernels/backends.h"

namespace coshard::kernels {

// Defined by each back end.
#define X(name) extern const KernelTable name##_kernels;
COSHARD_KERNEL_BACKENDS(X)
#undef X

namespace {

#define X(name) &name##_kernels,
constexpr std::array kTables = {COSHARD_KERNEL_BACKENDS(X)};
#undef X

std::atomic<const KernelTable*> added{nullptr};

}  // namespace

const KernelTable& kernels_of(DeviceKind kind) {
  for (const KernelTable* table : kTables)
    if (table->kind == kind) return *table;
  if (const KernelTable* table = added; table != nullptr && table->kind == kind) return *table;
  fail(ErrorKind::Unsupported,
       str_cat("this build has no kernels for device '", to_string(kind), "'"));
}

void add_kernels(const KernelTable& table) {
  const KernelTable* known = nullptr;
  if (added.compare_exchange_strong(known, &table)) return;
  CS_REQUIRE(known == &table, "add_kernels: device '", to_string(known->kind),
             "' has been added, and only one can be");
}

}  // namespace coshard::kernels
