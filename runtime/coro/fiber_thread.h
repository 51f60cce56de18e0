#pragma once
// Many ranks on one thread: runs fibers on the thread that calls run(), one at a time, each until
// it parks. Without a policy they run in the order in which they were woken; with one, in the order
// it draws, so that a program whose fibers only compute, wake and park runs identically for the
// same seed. Owned by whoever runs it; outlives everything that may wake its fibers.
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

// Scheduling policy: which fiber runs next, and the clock. Called on the FiberThread's thread;
// outlives it.
struct FiberPolicy {
  virtual ~FiberPolicy() = default;
  // Before each turn: the index, below `runnable`, of the fiber to run; 0 has waited longest.
  virtual std::size_t pick(std::size_t runnable) = 0;
  // If true, now() is a counter that starts at one second, advances by turn_ns(), and jumps to the
  // earliest deadline when no fiber can run. Called once, at the start.
  virtual bool virtual_time() const = 0;
  // The virtual duration of a turn, so that time also passes for fibers that only yield.
  virtual std::int64_t turn_ns() const { return 0; }
};

class FiberThread {
 public:
  explicit FiberThread(FiberPolicy* policy = nullptr, std::size_t stack_bytes = Fiber::kStackBytes);
  ~FiberThread();
  FiberThread(const FiberThread&) = delete;
  FiberThread& operator=(const FiberThread&) = delete;

  // Adds a fiber, before run() or on the running thread. Fibers are numbered from 0. Returns the
  // parker that is passed to `body`; it lives as long as this object, outliving the fiber. It parks
  // only its own fiber, and accepts only this thread's io_context.
  Parker& spawn(std::function<void(Parker&)> body);

  // Runs until all fibers have ended, then throws the first exception that left one. The thread
  // sleeps only while no fiber can run. Error{BadInput} inside a running FiberThread. In virtual
  // time, a deadlock (all fibers sleep without a deadline, and the io_context has no work) is
  // Error{BadInput}, unless a fiber has thrown before. In that case, and if a policy or a hook
  // throws, the remaining fibers are abandoned as by ~Fiber: park() throws Error{Cancelled}.
  void run();

  // Shared by all fibers. Polled between turns, on the thread's own stack; the thread blocks in it
  // while it has work and no fiber can run, so other threads must hold a work guard to post to it.
  // A fiber parked in it is woken whenever a handler may have run; a handler's exception is thrown
  // from the park() of the first such fiber, or from run() if there is none.
  boost::asio::io_context& io_context() noexcept { return *io_; }

  // `hook(i)` before fiber i runs, `hook(-1)` after it parks or ends; must not throw. For
  // thread-local pointers of ranks.
  void on_switch(std::function<void(int fiber)> hook) { on_switch_ = std::move(hook); }
  // In virtual time, at the first deadlock of a run(), before it becomes an error: may wake fibers.
  void on_stuck(std::function<void()> hook) { on_stuck_ = std::move(hook); }

  // Whether the calling thread is inside its run().
  bool runs_here() const noexcept { return here_ == this; }
  bool virtual_time() const noexcept { return virtual_time_; }
  std::int64_t now() const { return virtual_time_ ? virtual_now_ : sleep_.now(); }

 private:
  friend class FiberParker;
  using Timers = std::multimap<std::int64_t, FiberParker*>;  // equal times: in the order they slept
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
  void idle();
  void rest_virtually(bool has_work);
  bool poll_asio();
  void sleep(std::int64_t deadline_ns, bool in_asio);
  void fire_timers();
  void wake_sleepers_in_asio();
  void catch_handler_error();
  void note_error() noexcept;
  void give_up() noexcept;

  // Called by parkers: unparked() from the unpark() of a sleeping one, on any thread; the others on
  // this thread.
  void unparked(FiberParker& fiber) noexcept;
  void take_arrivals() noexcept;
  void wake(FiberParker& fiber) noexcept;
  void remove_timer(FiberParker& fiber) noexcept;

  static constexpr int kTurnsPerLook = 64;  // turns between checks of clock and io_context
  static constexpr int kHandlersPerLook = 16;
  inline static constinit thread_local FiberThread* here_ = nullptr;  // running on this thread

  FiberPolicy* policy_;
  bool virtual_time_;
  std::size_t stack_bytes_;
  std::function<void(int)> on_switch_;
  std::function<void()> on_stuck_;
  std::vector<std::unique_ptr<FiberParker>> fibers_;  // including those that have ended
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
  std::atomic<FiberParker*> arrivals_{nullptr};  // woken by other threads, most recent first
  std::atomic<int> wakers_{0};                   // other threads inside unparked()
};

}  // namespace coshard
