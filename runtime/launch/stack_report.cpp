#include "runtime/launch/stack_report.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include <coshard/runtime/coro/stack_room.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {
namespace {

constexpr std::size_t kOwnStack = std::size_t{64} << 10;

// Reports of all threads: the first sets the handler, the last restores the one before.
struct Handler {
  std::mutex mutex;
  int users = 0;
  struct sigaction before {};
};
Handler& handler() {
  static Handler& one = *new Handler;  // leaked: a signal may come during static destruction
  return one;
}

// This thread's: the stack that the handler runs on; null: the thread had one already.
struct OwnStack {
  int users = 0;
  std::unique_ptr<std::byte[]> memory;
};
thread_local OwnStack own_stack;

// A line made without memory of the heap, which the signal may have interrupted.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  Line& operator<<(std::size_t number) {
    std::array<char, 24> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }
  void write() const { static_cast<void>(!::write(STDERR_FILENO, text_.data(), size_)); }

 private:
  std::array<char, 512> text_;
  std::size_t size_ = 0;
};

void tell(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const StackPlace& stack = StackRoom::current();
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (stack.bottom != 0 && at < stack.bottom && stack.bottom - at <= stack.guard) {
    Line line;
    line << "error: ";
    if (const World* world = World::current())
      line << "rank " << static_cast<std::size_t>(world->rank()) << ": ";
    line << "stack overflow: all " << stack.bytes << " bytes of its stack are in use; "
         << StackRoom::remedy() << "\n";
    line.write();
  }
  ::sigaction(signal, &handler().before, nullptr);  // the fault comes again, to whom it was due
  errno = error;
}

void take_handler() {
  Handler& one = handler();
  const std::scoped_lock lock(one.mutex);
  if (one.users++ > 0) return;
  struct sigaction ours {};
  ours.sa_sigaction = tell;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &ours, &one.before);
}
void return_handler() {
  Handler& one = handler();
  const std::scoped_lock lock(one.mutex);
  if (--one.users > 0) return;
  struct sigaction now {};
  ::sigaction(SIGSEGV, nullptr, &now);
  // Not one that the program has set meanwhile.
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == tell)
    ::sigaction(SIGSEGV, &one.before, nullptr);
}

void take_stack() {
  if (own_stack.users++ > 0) return;
  stack_t now{};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  own_stack.memory = std::make_unique<std::byte[]>(kOwnStack);
  now.ss_sp = own_stack.memory.get();
  now.ss_size = kOwnStack;
  now.ss_flags = 0;
  ::sigaltstack(&now, nullptr);
}
void return_stack() {
  if (--own_stack.users > 0 || own_stack.memory == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  own_stack.memory.reset();
}

}  // namespace

StackReport::StackReport(bool wanted) : wanted_(wanted) {
  if (!wanted_) return;
  StackRoom::know();
  take_stack();
  take_handler();
}

StackReport::~StackReport() {
  if (!wanted_) return;
  return_handler();
  return_stack();
}

}  // namespace coshard
