#pragma once
// Tells of a stack that overflows: WorldOptions::report_stack_overflow. On the thread of a rank.

namespace coshard {

// While one lives, SIGSEGV is handled, on a stack of its own: a fault in the guard below this
// thread's stack, or below a fiber's on it, is told on stderr in one line. Then, as for any other
// fault, whoever handled the signal before gets it.
class StackReport {
 public:
  explicit StackReport(bool wanted);
  ~StackReport();
  StackReport(const StackReport&) = delete;
  StackReport& operator=(const StackReport&) = delete;

 private:
  bool wanted_;
};

}  // namespace coshard
