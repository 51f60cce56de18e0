#include <coshard/runtime/coro/stack_room.h>

#include <pthread.h>

#include <boost/context/detail/fcontext.hpp>
#include <exception>
#include <new>
#include <optional>

#include <coshard/runtime/error.h>
#include "runtime/coro/fiber_stack.h"
#include "runtime/coro/fiber_switch.h"

namespace coshard {
namespace {

namespace context = boost::context::detail;

#if COSHARD_TSAN
constexpr std::size_t kMore = std::size_t{2} << 20;  // it records at most 65,536 nested calls
#else
constexpr std::size_t kMore = std::size_t{8} << 20;
#endif

// A call on another stack. Not a Fiber: what it waits for is waited for by the fiber that calls.
struct Call {
  const std::function<void()>& work;
  SwitchSide own, caller;
  std::exception_ptr error;

  static void run(context::transfer_t from) {
    Call& call = *static_cast<Call*>(from.data);
    after_jump(call.own, call.caller);
    try {
      call.work();
    } catch (...) {
      call.error = std::current_exception();
    }
    before_suspend(call.own, call.caller, true);
    context::jump_fcontext(from.fctx, nullptr);
  }
};

}  // namespace

bool StackRoom::on_another(const std::function<void()>& work) {
  std::optional<FiberStack> stack;
  try {
    stack.emplace(kMore);
  } catch (const Error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  Call call{work, make_side(stack->bottom(), stack->bytes()), {}, nullptr};
  const StackPlace here = exchange({reinterpret_cast<std::uintptr_t>(stack->bottom()),
                                    stack->bytes(), FiberStack::kGuard, current_.fiber});
  const context::fcontext_t begin =
      context::make_fcontext(stack->top(), stack->bytes(), &Call::run);
  before_resume(call.caller, call.own);
  context::jump_fcontext(begin, &call);
  after_jump(call.caller, call.own);
  exchange(here);
  forget_fiber(call.own);
  if (call.error) std::rethrow_exception(call.error);
  return true;
}

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
