#include <coshard/runtime/coro/stack_room.h>

#include <pthread.h>

#include <coshard/runtime/error.h>

namespace coshard {

void StackRoom::know_thread() {
  pthread_attr_t all;
  if (::pthread_getattr_np(::pthread_self(), &all) != 0) return;
  void* bottom = nullptr;
  std::size_t bytes = 0, guard = 0;
  if (::pthread_attr_getstack(&all, &bottom, &bytes) == 0 &&
      ::pthread_attr_getguardsize(&all, &guard) == 0)
    current_ = {reinterpret_cast<std::uintptr_t>(bottom), bytes, guard, false};
  ::pthread_attr_destroy(&all);
}

const char* StackRoom::remedy() noexcept {
  return current_.fiber ? "raise WorldOptions::stack_bytes, or call and await less deeply"
                        : "raise the stack of threads (ulimit -s), or call and await less deeply";
}

void StackRoom::fail(std::uintptr_t here) {
  coshard::fail(ErrorKind::BadInput,
                str_cat("await: ", here - current_.bottom, " of the ", current_.bytes,
                        " bytes of stack are left, and awaits leave ", kKept, " free; ", remedy()));
}

}  // namespace coshard
