#include "runtime/coro/fiber.h"

#include <cxxabi.h>

// The low-level functions beneath boost::context::fiber: that class adds frames around the jump,
// which TSan would count on the wrong stack, and unwinds with an exception that is not an Error.
#include <boost/context/detail/fcontext.hpp>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {

namespace context = boost::context::detail;

// The first function on a fiber's stack.
struct Fiber::Entry {
  static void run(context::transfer_t from) {
    Fiber& fiber = *static_cast<Fiber*>(from.data);
    fiber.context_ = from.fctx;
    after_jump(fiber.own_, fiber.resumer_);
    try {
      fiber.body_();
    } catch (...) {
      fiber.error_ = std::current_exception();
    }
    fiber.state_ = State::Done;
    fiber.leave_stack(true);
  }
};

Fiber::Fiber(std::function<void()> body, std::size_t stack_bytes)
    : body_(std::move(body)),
      stack_(stack_bytes),
      room_{reinterpret_cast<std::uintptr_t>(stack_.bottom()), stack_.bytes(), FiberStack::kGuard,
            true},
      context_(context::make_fcontext(stack_.top(), stack_.bytes(), &Entry::run)) {
  CS_REQUIRE(body_, "fiber: its function is empty");
  own_ = make_side(stack_.bottom(), stack_.bytes());
}

Fiber::~Fiber() {
  given_up_ = true;
  if (state_ == State::Suspended) enter_stack();
  forget_fiber(own_);
}

void Fiber::resume() {
  CS_REQUIRE(state_ != State::Done, "fiber: resumed after it finished");
  CS_REQUIRE(state_ != State::Running, "fiber: resumed while it is running");
  if (thread_ == nullptr) thread_ = &current_;
  CS_REQUIRE(thread_ == &current_, "fiber: resumed on a thread other than its own");
  enter_stack();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Fiber::suspend() {
  Fiber* fiber = current_;
  CS_REQUIRE(fiber != nullptr, "fiber: suspend called outside a fiber");
  if (!fiber->given_up_) {
    fiber->state_ = State::Suspended;
    fiber->leave_stack(false);
  }
  if (fiber->given_up_) [[unlikely]]
    fail(ErrorKind::Cancelled, "fiber: abandoned before it finished");
}

void Fiber::enter_stack() noexcept {
  auto& globals = *reinterpret_cast<ExceptionGlobals*>(abi::__cxa_get_globals());
  Fiber* const before = std::exchange(current_, this);
  state_ = State::Running;
  std::swap(globals, exceptions_);
  const StackPlace resumers = StackRoom::exchange(room_);
  before_resume(resumer_, own_);
  const context::transfer_t back = context::jump_fcontext(context_, this);
  after_jump(resumer_, own_);
  StackRoom::exchange(resumers);
  context_ = back.fctx;
  std::swap(globals, exceptions_);
  current_ = before;
}

void Fiber::leave_stack(bool for_ever) noexcept {
  before_suspend(own_, resumer_, for_ever);
  const context::transfer_t from = context::jump_fcontext(context_, nullptr);
  after_jump(own_, resumer_);
  context_ = from.fctx;
}

}  // namespace coshard
