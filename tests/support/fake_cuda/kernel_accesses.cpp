#include "tests/support/fake_cuda/kernel_accesses.h"

#include <bit>

namespace coshard::testing {
namespace {

thread_local KernelAccesses* current = nullptr;

}  // namespace

KernelAccesses::KernelAccesses(const std::vector<FakeDriver::Allocation>& reach) {
  for (const auto& memory : reach)
    reach_.push_back({reinterpret_cast<std::uintptr_t>(memory.data), memory.bytes});
  current = this;
}
KernelAccesses::~KernelAccesses() { current = nullptr; }

bool KernelAccesses::look_up(std::uintptr_t at) {
  for (const Memory& memory : reach_) {
    if (at - memory.begin >= memory.bytes) continue;
    last_ = memory;
    return true;
  }
  return false;
}

bool KernelAccesses::seen() {
#if defined(COSHARD_KERNEL_ACCESSES)
  return true;
#else
  return false;
#endif
}

KernelAccesses::Page& KernelAccesses::turn_to(std::uintptr_t number) {
  number_ = number;
  page_ = &pages_[number];
  return *page_;
}

std::vector<KernelAccesses::Range> KernelAccesses::take() {
  current = nullptr;
  std::vector<Range> ranges;
  std::uintptr_t end = 0;
  const auto add = [&](std::uintptr_t at, std::size_t bytes, bool writes) {
    if (at == end && !ranges.empty() && ranges.back().writes == writes)
      ranges.back().bytes += bytes;
    else
      ranges.push_back({reinterpret_cast<const void*>(at), bytes, writes});  // NOLINT
    end = at + bytes;
  };
  for (const bool writes : {false, true}) {
    for (const auto& [number, page] : pages_) {
      std::uintptr_t at = number * kPage;
      for (const std::uint64_t used : writes ? page.written : page.read) {
        for (int bit = 0; bit < 64;) {
          const int skipped = std::countr_zero(used >> bit);
          if (bit + skipped >= 64) break;
          bit += skipped;
          const int count = std::countr_one(used >> bit);
          add(at + static_cast<std::uintptr_t>(bit), static_cast<std::size_t>(count), writes);
          bit += count;
        }
        at += 64;
      }
    }
  }
  return ranges;
}

}  // namespace coshard::testing

#if defined(COSHARD_KERNEL_ACCESSES)

// The names are the compiler's.
// NOLINTBEGIN
extern "C" {

#define NOTE(name, bytes, writes)                                                           \
  void __tsan_##name(void* at) {                                                            \
    if (coshard::testing::current != nullptr)                                               \
      coshard::testing::current->note(reinterpret_cast<std::uintptr_t>(at), bytes, writes); \
  }
#define NOTE_BOTH(name, bytes)   \
  NOTE(read##name, bytes, false) \
  NOTE(write##name, bytes, true)
NOTE_BOTH(1, 1)
NOTE_BOTH(2, 2)
NOTE_BOTH(4, 4)
NOTE_BOTH(8, 8)
NOTE_BOTH(16, 16)
NOTE(unaligned_read2, 2, false)
NOTE(unaligned_read4, 4, false)
NOTE(unaligned_read8, 8, false)
NOTE(unaligned_read16, 16, false)
NOTE(unaligned_write2, 2, true)
NOTE(unaligned_write4, 4, true)
NOTE(unaligned_write8, 8, true)
NOTE(unaligned_write16, 16, true)
NOTE(volatile_read1, 1, false)
NOTE(volatile_read2, 2, false)
NOTE(volatile_read4, 4, false)
NOTE(volatile_read8, 8, false)
NOTE(volatile_read16, 16, false)
NOTE(volatile_write1, 1, true)
NOTE(volatile_write2, 2, true)
NOTE(volatile_write4, 4, true)
NOTE(volatile_write8, 8, true)
NOTE(volatile_write16, 16, true)
void __tsan_read_range(void* at, unsigned long bytes) {
  if (coshard::testing::current != nullptr)
    coshard::testing::current->note(reinterpret_cast<std::uintptr_t>(at), bytes, false);
}
void __tsan_write_range(void* at, unsigned long bytes) {
  if (coshard::testing::current != nullptr)
    coshard::testing::current->note(reinterpret_cast<std::uintptr_t>(at), bytes, true);
}
// Host code around the bodies has atomics (reference counts), which are not a kernel's accesses.
#define ATOMIC(bits, T)                                                                        \
  T __tsan_atomic##bits##_load(const volatile T* at, int) {                                    \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile T* at, T value, int) {                             \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                            \
  T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) {                             \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                   \
  }                                                                                            \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) {                            \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                            \
  T __tsan_atomic##bits##_fetch_sub(volatile T* at, T value, int) {                            \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T value, int, \
                                                    int) {                                     \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,           \
                                       __ATOMIC_SEQ_CST);                                      \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T value, int,   \
                                                  int) {                                       \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, 0, 0);           \
  }
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned int)
ATOMIC(64, unsigned long)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
// NOLINTEND

#endif
