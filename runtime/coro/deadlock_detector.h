#pragma once
// Deadlock detection among the ranks of a world that share one process: counts the ranks that are
// awake. When all of them sleep and nothing else is pending, nothing can ever wake one; the
// deadlock is reported at once, with what each rank waits for.
//
// A rank counts as asleep only while nothing but another rank can wake it: no timer, no Asio work
// and no foreign awaitable is pending on it. The waker, not the woken rank, removes a rank from
// the count of sleepers, so a rank that was woken but has not run yet counts as awake. A thread
// that runs transfers for ranks (progress_threads.h) is a waiter too, but is not asked what it
// waits for.
//
// A waiter's state, changed by atomic exchange:
//   state    the rank itself makes it   a waker makes it    by
//   awake    dozing                     awake               prepare_wait(): changes wake it now
//   dozing   asleep, counted            awake               fall_asleep(), after a last look
//   asleep   awake, uncounted           awake, uncounted    wake(), unparked()
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include <coshard/runtime/coro/parker.h>

namespace coshard {

class DeadlockDetector;

// One rank in the deadlock detector. Used on the rank's thread, except for unparked().
class WaiterState {
 public:
  WaiterState(DeadlockDetector& deadlock_detector, int rank)
      : deadlock_detector_(deadlock_detector), rank_(rank) {}
  WaiterState(const WaiterState&) = delete;
  WaiterState& operator=(const WaiterState&) = delete;

  DeadlockDetector& deadlock_detector() const noexcept { return deadlock_detector_; }
  // Memory order: what a waker wrote before unparked() is visible after the next prepare_wait().
  void prepare_wait() noexcept { state_.exchange(kDozing, std::memory_order_acq_rel); }
  // False: it was woken since prepare_wait(), so there is something to look at.
  bool fall_asleep();
  void wake() noexcept;
  void unparked() noexcept { wake(); }  // any thread
  // All sleepers were found asleep, and this one has not answered yet.
  bool asked() const noexcept { return asked_.load(std::memory_order_acquire); }
  // "waits for all_reduce #3 on tp[2] at train.cpp:88"
  void report(std::string standing);

 private:
  friend class DeadlockDetector;
  static constexpr int kHelper = -1;  // its rank
  bool is_asked() const noexcept { return !left_ && rank_ != kHelper; }
  enum State : std::uint32_t { kAwake, kDozing, kAsleep };
  DeadlockDetector& deadlock_detector_;
  const int rank_;
  std::atomic<std::uint32_t> state_{kAwake};
  std::atomic<bool> asked_{
      false};  // changed under the mutex of the deadlock detector, as the two below are
  bool left_ = false;
  std::string standing_;
};

class DeadlockDetector {
 public:
  // `wake` wakes a rank, `on_deadlock` is called once, by the rank that was the last to answer:
  // "rank 0 waits for all_reduce #3 on tp[2] at train.cpp:88; rank 1 …".
  DeadlockDetector(std::function<void(int rank)> wake,
                   std::function<void(const std::string& standings)> on_deadlock)
      : wake_(std::move(wake)), on_deadlock_(std::move(on_deadlock)) {}
  DeadlockDetector(const DeadlockDetector&) = delete;
  DeadlockDetector& operator=(const DeadlockDetector&) = delete;

  // Called before the ranks start; the WaiterState lives as long as the deadlock detector.
  WaiterState& add(int rank);
  WaiterState& add_helper();
  // The rank has ended: it neither sleeps nor wakes others. Called on its thread.
  void leave(WaiterState& waiter_state);

 private:
  friend class WaiterState;
  void one_less();
  void ask();
  void answered(std::unique_lock<std::mutex>& lock);
  std::string standings() const;

  std::function<void(int)> wake_;
  std::function<void(const std::string&)> on_deadlock_;
  // Ranks and helpers that are awake. At 0, only the thread that asks the ranks and a rank whose
  // own deadline expires can change it.
  alignas(64) std::atomic<std::int64_t> awake_{0};
  std::mutex mutex_;  // all below
  std::deque<WaiterState> sleepers_;
  int unanswered_ = 0;
  std::atomic<bool> asks_{false};  // false -> true, once; written under the mutex
};

// A rank's parker: forwards to `inner`; unpark() also removes the rank from the count of sleepers.
class CountedParker final : public Parker {
 public:
  explicit CountedParker(Parker& inner) : inner_(inner) {}
  void count(WaiterState* waiter_state) noexcept {
    waiter_state_ = waiter_state;
  }  // before the rank starts

  void park(std::int64_t deadline_ns, boost::asio::io_context* asio) override {
    inner_.park(deadline_ns, asio);
  }
  void unpark() noexcept override {
    if (waiter_state_ != nullptr) waiter_state_->unparked();
    inner_.unpark();
  }
  std::int64_t now() const override { return inner_.now(); }
  bool shares_its_thread() const override { return inner_.shares_its_thread(); }

 private:
  Parker& inner_;
  WaiterState* waiter_state_ = nullptr;
};

// Scope of a rank's sleep: it dozes from the constructor on and is awake after the destructor. Does
// nothing for a rank that is not in a deadlock detector.
class IdleScope {
 public:
  explicit IdleScope(WaiterState* waiter_state) : waiter_state_(waiter_state) {
    if (waiter_state_ != nullptr) waiter_state_->prepare_wait();
  }
  ~IdleScope() {
    if (waiter_state_ != nullptr) waiter_state_->wake();
  }
  IdleScope(const IdleScope&) = delete;
  IdleScope& operator=(const IdleScope&) = delete;

  // Called after a last look that found nothing to do, before parking, when only another rank can
  // end the sleep. False: it was woken since the constructor.
  bool begin() { return waiter_state_ == nullptr || waiter_state_->fall_asleep(); }
  // After parking: reports what the rank waits for, `standing()`, if asked.
  template <class Standing>
  void end(const Standing& standing) {
    if (waiter_state_ == nullptr) return;
    waiter_state_->wake();
    if (waiter_state_->asked()) waiter_state_->report(standing());
  }

 private:
  WaiterState* waiter_state_;
};

}  // namespace coshard
