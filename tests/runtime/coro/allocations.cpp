#include "tests/runtime/coro/allocations.h"

#include <cstdlib>
#include <new>

namespace coshard::testing {
namespace {
thread_local long made = 0;
thread_local long until_failure = -1;
}  // namespace

long allocations() { return made; }
void fail_allocation_after(long count) { until_failure = count; }

[[maybe_unused]] static void* counted(std::size_t bytes) {
  ++made;
  if (until_failure >= 0 && until_failure-- == 0) throw std::bad_alloc();
  for (;;) {
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace coshard::testing

#if !COSHARD_ASAN && !COSHARD_TSAN
// g++ 12 inlines one of the pair and takes the other for the library's.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) { return coshard::testing::counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#pragma GCC diagnostic pop
#endif
