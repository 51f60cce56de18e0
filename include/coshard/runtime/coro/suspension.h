#pragma once
// Where a coroutine of the library is suspended. A branch (branch.h) has at most one at a time,
// which is how cancelling the branch finds it. Rank's thread.
#include <coroutine>
#include <cstdint>
#include <exception>
#include <string>

#pragma GCC visibility push(default)
namespace coshard {

class Branch;
class Parker;

// The result of polling something awaited.
enum class Poll : std::uint8_t {
  Done,        // the coroutine may continue
  Progressed,  // not yet, but a share of the work was done: poll again
  Pending,     // not yet, and nothing can be done here
};

class Suspension {
 public:
  // Ends the wait early: the coroutine resumes through the queue `ready`, and its co_await throws
  // what its branch was cancelled with.
  virtual void give_up() noexcept = 0;

 protected:
  Suspension() = default;
  ~Suspension() = default;
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;
};

// An entry of the executor's queue `waiting`. Lives in the frame of the suspended coroutine; its
// destructor unlinks it.
class Waiting : public Suspension {
 public:
  // Does a share of the remaining work. Called for the head of the queue only.
  virtual Poll poll() = 0;
  // The rank is about to sleep on this head: wakes `parker` whenever poll() may have changed, until
  // unsubscribe(). False: nothing will wake it, so it must be polled.
  virtual bool subscribe(Parker& parker) = 0;
  virtual void unsubscribe(Parker& parker) noexcept = 0;
  // It has been the head for `waited_ns`: completes it if it has failed or is past its deadline.
  // Returns when to check again, by the rank's clock; 0: when woken.
  virtual std::int64_t check(std::int64_t waited_ns) = 0;
  // "all_reduce #3 on tp[2] at train.cpp:88": for reports of what a rank waits for.
  virtual std::string describe() const = 0;
  // The rank, which stood still for it since poll(), runs again although it may not be over.
  virtual void rank_runs() {}
  // Whether something outside this executor ends it: a peer, another thread.
  virtual bool ends_elsewhere() const { return true; }
  // Whether time alone will end it (an emulated link is busy).
  virtual bool ends_in_time() const { return false; }

  bool linked() const noexcept { return next_ != nullptr; }

 protected:
  Waiting() = default;
  ~Waiting() { unlink(); }
  // The branch that is suspended in it.
  Branch& branch() const noexcept { return *branch_; }
  // Takes it out of its queue.
  void unlink() noexcept {
    if (next_ == nullptr) return;
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = nullptr;
  }

 private:
  friend class Executor;
  friend class WaitingQueue;

  std::coroutine_handle<> coroutine_;
  Branch* branch_ = nullptr;
  std::int64_t head_since_ns_ = 0;  // 0: not the head yet, or already over when it became head
  Waiting* next_ = nullptr;
  Waiting* previous_ = nullptr;
};

}  // namespace coshard
#pragma GCC visibility pop
