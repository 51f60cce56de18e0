#pragma once
// The parker of one fiber, owned by its FiberThread (fiber_thread.h).
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include <coshard/runtime/coro/parker.h>
#include "runtime/coro/fiber.h"
#include "runtime/coro/fiber_thread.h"

namespace coshard {

class FiberParker final : public Parker {
 public:
  FiberParker(FiberThread& home, int index, std::function<void(Parker&)> body,
              std::size_t stack_bytes);

  void park(std::int64_t deadline_ns, boost::asio::io_context* asio) override;
  void unpark() noexcept override;
  std::int64_t now() const override { return home_.now(); }
  bool shares_its_thread() const override { return true; }

 private:
  friend class FiberThread;
  // The fiber: kAwake -> kAsleep, and kUnparked -> kAwake, in park().
  // A wake-up: any -> kUnparked; the one that finds kAsleep makes the fiber runnable.
  // Deadline, handler: kAsleep -> kAwake, and the fiber is runnable.
  enum State : std::uint32_t { kAwake, kUnparked, kAsleep };

  void let_others_run();
  void fall_asleep(std::int64_t deadline_ns, bool in_asio);

  FiberThread& home_;
  const int index_;
  std::unique_ptr<Fiber> fiber_;  // null: it has ended
  std::atomic<std::uint32_t> state_{kAwake};
  // Link in runnable_ or arrivals_. Belongs to the thread that moved the state from kAsleep, until
  // the fiber is taken off that list.
  FiberParker* next_ = nullptr;
  // Used on the home thread only:
  FiberThread::Timers::node_type timer_;  // empty while it is among the timers
  FiberThread::Timers::iterator place_;
  bool timed_ = false;
  bool in_asio_ = false;
  std::exception_ptr handler_error_;
};

}  // namespace coshard
