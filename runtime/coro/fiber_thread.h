#pragma once
// Many ranks on one thread: runs fibers on the thread that calls run(), one at a time, each until
// it parks. Without a policy the order is the order in which they were rung; with one, whatever the
// policy draws, so that a program whose fibers do nothing but compute, ring and park runs the same
// for the same seed. Owned by whoever runs it; outlives whatever may ring its fibers.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <coshard/runtime/coro/parker.h>
#include "runtime/coro/fiber.h"

namespace coshard {

class FiberParker;

// Who goes on, and what time it is. Asked on the thread of the FiberThread, which it outlives.
struct FiberPolicy {
  virtual ~FiberPolicy() = default;
  // Before each turn: the one of `runnable` fibers that goes on; 0 has waited longest.
  virtual std::size_t pick(std::size_t runnable) = 0;
  // now() is a counter, which begins at one second, goes on by turn_ns(), and jumps to the earliest
  // deadline when no fiber can run. Asked once, at the beginning.
  virtual bool virtual_time() const = 0;
  // What a turn takes in virtual time, so that fibers that only let others run come to its end too.
  virtual std::int64_t turn_ns() const { return 0; }
};

class FiberThread {
 public:
  explicit FiberThread(FiberPolicy* policy = nullptr, std::size_t stack_bytes = Fiber::kStackBytes);
  ~FiberThread();
  FiberThread(const FiberThread&) = delete;
  FiberThread& operator=(const FiberThread&) = delete;

  // A fiber more, before run() or on the running thread. Fibers are numbered from 0. The parker
  // that its body gets is returned too: it lives as long as this object, not just as the fiber. It
  // parks its own fiber only, and takes no other io_context than this thread's.
  Parker& spawn(std::function<void(Parker&)> body);

  // Runs until all fibers have ended, then throws the first exception that left a body. The thread
  // sleeps only while no fiber can run. Error{BadInput} inside a FiberThread that runs. In virtual
  // time Error{BadInput}, unless a body has thrown before, when all fibers sleep, without a
  // deadline, and the io_context has no work; then, and when a policy or a hook throws, the fibers
  // that have not ended are given up as ~Fiber does: park() throws Error{Cancelled}.
  void run();

  // One for all fibers. It is polled between turns, on the thread's own stack, and slept in while
  // it has work and no fiber can run: other threads post to it under a work guard. A fiber that
  // parks in it is woken whenever a handler may have run; what a handler throws leaves the park()
  // of the first of them, or run() where there is none.
  boost::asio::io_context& io_context() noexcept { return *io_; }

  // `hook(i)` before fiber i goes on, `hook(-1)` after it has gone off or ended; must not throw.
  // For the thread-local pointers of ranks.
  void on_switch(std::function<void(int fiber)> hook) { on_switch_ = std::move(hook); }
  // In virtual time, at the first standstill of a run(), before that is an error: may ring fibers.
  void on_stuck(std::function<void()> hook) { on_stuck_ = std::move(hook); }

  bool virtual_time() const noexcept { return virtual_time_; }
  std::int64_t now() const { return virtual_time_ ? virtual_now_ : sleep_.now(); }

 private:
  friend class FiberParker;
  using Timers = std::multimap<std::int64_t, FiberParker*>;  // of one time: who slept first
  struct Line {  // first in, first out; a fiber is in one line at most
    FiberParker* first = nullptr;
    FiberParker* last = nullptr;
    std::size_t size = 0;
    void push(FiberParker& fiber) noexcept;
    FiberParker& take(std::size_t index) noexcept;
  };

  void run_all();
  void turn(FiberParker& fiber);
  void announce(int fiber) noexcept;
  FiberParker* next();
  void look_around();
  void rest();
  void rest_virtually(bool has_work);
  bool poll_asio();
  void sleep(std::int64_t deadline_ns, bool in_asio);
  void fire_timers();
  void wake_sleepers_in_asio();
  void catch_handler_error();
  void note_error() noexcept;
  void give_up() noexcept;

  // Of parkers. ring() of one that sleeps, on any thread; the others on this thread.
  void rung(FiberParker& fiber) noexcept;
  void take_arrivals() noexcept;
  void wake(FiberParker& fiber) noexcept;
  void out_of_bed(FiberParker& fiber) noexcept;

  static constexpr int kTurnsPerLook = 64;  // turns between two looks at clock and io_context
  static constexpr int kHandlersPerLook = 16;
  inline static constinit thread_local FiberThread* here_ = nullptr;  // that runs on this thread

  FiberPolicy* policy_;
  bool virtual_time_;
  std::size_t stack_bytes_;
  std::function<void(int)> on_switch_;
  std::function<void()> on_stuck_;
  std::vector<std::unique_ptr<FiberParker>> fibers_;  // also of those that have ended
  std::size_t alive_ = 0;
  std::size_t in_asio_ = 0;  // fibers that park in the io_context
  Line runnable_;
  Timers timers_;
  std::unique_ptr<boost::asio::io_context> io_;
  std::int64_t virtual_now_ = 1'000'000'000;
  int budget_ = kTurnsPerLook;
  bool told_stuck_ = false;
  bool giving_up_ = false;
  std::exception_ptr error_;
  ThreadParker sleep_;                           // where the thread sleeps
  std::atomic<FiberParker*> arrivals_{nullptr};  // rung by other threads, the last one first
  std::atomic<int> ringers_{0};                  // other threads between rung() and its end
};

}  // namespace coshard
