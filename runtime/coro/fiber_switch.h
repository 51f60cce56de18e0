#pragma once
// Stack switch annotations for AddressSanitizer and ThreadSanitizer; no-ops in other builds. Forced
// inline: the jump must be in the function that calls these, since TSan tracks function entry and
// exit per stack.
#include <cstddef>

#include <coshard/runtime/sanitizers.h>

#if COSHARD_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif COSHARD_TSAN
#include <sanitizer/tsan_interface.h>

extern "C" [[gnu::weak]] int omp_get_max_threads();
#endif

namespace coshard {

// One of the two stacks of a switch: a fiber's, or its resumer's.
struct SwitchSide {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake_stack = nullptr;  // ASan's, while the stack is switched out
  void* tsan_fiber = nullptr;
};

// Before the first fiber of a thread: OpenMP's TSan tool (LLVM's Archer) records a function entry
// at the thread's first use of OpenMP and its exit when the thread ends. With the first use on a
// fiber, the thread would exit a function it never entered and write below its shadow call stack.
inline void before_fibers() {
#if COSHARD_TSAN
  if (omp_get_max_threads != nullptr) omp_get_max_threads();
#endif
}

// The side of a fiber that has not run yet; call forget_fiber, from another stack, once it will
// never run again.
inline SwitchSide make_side(const void* bottom, std::size_t bytes) {
  SwitchSide side{bottom, bytes};
#if COSHARD_TSAN
  side.tsan_fiber = __tsan_create_fiber(0);
#endif
  return side;
}
inline void forget_fiber([[maybe_unused]] SwitchSide& side) noexcept {
#if COSHARD_TSAN
  __tsan_destroy_fiber(side.tsan_fiber);
#endif
}

// Nothing runs on this stack any more: clears the poisoning of frames that never returned, for the
// next user of the memory.
inline void forget_stack([[maybe_unused]] void* bottom,
                         [[maybe_unused]] std::size_t bytes) noexcept {
#if COSHARD_ASAN
  __asan_unpoison_memory_region(bottom, bytes);
#endif
}

// Right before the jump to a fiber: `resumer` is the stack that runs now.
[[gnu::always_inline]] inline void before_resume([[maybe_unused]] SwitchSide& resumer,
                                                 [[maybe_unused]] const SwitchSide& fiber) {
#if COSHARD_ASAN
  __sanitizer_start_switch_fiber(&resumer.fake_stack, fiber.bottom, fiber.bytes);
#elif COSHARD_TSAN
  resumer.tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan_fiber, 0);
#endif
}

// Right before the jump back; `for_ever`: the fiber never resumes.
[[gnu::always_inline]] inline void before_suspend([[maybe_unused]] SwitchSide& fiber,
                                                  [[maybe_unused]] const SwitchSide& resumer,
                                                  [[maybe_unused]] bool for_ever) {
#if COSHARD_ASAN
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fiber.fake_stack, resumer.bottom,
                                 resumer.bytes);
#elif COSHARD_TSAN
  __tsan_switch_to_fiber(resumer.tsan_fiber, 0);
#endif
}

// First thing on the stack that was jumped to, `to`, from `from`.
[[gnu::always_inline]] inline void after_jump([[maybe_unused]] const SwitchSide& to,
                                              [[maybe_unused]] SwitchSide& from) {
#if COSHARD_ASAN
  __sanitizer_finish_switch_fiber(to.fake_stack, &from.bottom, &from.bytes);
#endif
}

}  // namespace coshard
