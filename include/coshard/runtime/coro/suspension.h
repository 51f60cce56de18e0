#pragma once
// Where a coroutine of ours is suspended. A branch (branch.h) has at most one at a time, so that
// whoever cancels the branch finds it. Rank's thread.
#include <coroutine>
#include <cstdint>
#include <exception>
#include <string>

namespace coshard {

class Branch;
class Parker;

// What a look at something awaited shows.
enum class Look : std::uint8_t {
  Over,   // the coroutine may go on
  Moved,  // not yet, but a share of the work was done: look again
  Stuck,  // not yet, and nothing can be done here
};

class Suspension {
 public:
  // The wait is over without what was waited for: the coroutine resumes through the queue `ready`
  // and its co_await throws what its branch was cancelled with.
  virtual void give_up() noexcept = 0;

 protected:
  Suspension() = default;
  ~Suspension() = default;
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;
};

// An entry of the executor's queue `waiting`. Lives in the frame of the coroutine that is
// suspended; its destructor takes it out of the queue.
class Waiting : public Suspension {
 public:
  // Does a share of the work that is missing. Called for the head of the queue only.
  virtual Look look() = 0;
  // The rank is about to sleep because of this head: rings `parker` when look() may have changed,
  // until deaf(). False: nobody will ring, it has to be polled.
  virtual bool listen(Parker& parker) = 0;
  virtual void deaf(Parker& parker) noexcept = 0;
  // Head since `waited_ns`: what has failed or is past its deadline is over. When to look again, by
  // the rank's clock; 0: when rung for.
  virtual std::int64_t check(std::int64_t waited_ns) = 0;
  // "all_reduce #3 on tp[2] at train.cpp:88": for who asks why nothing goes on.
  virtual std::string describe() const = 0;
  // Whether something outside of this executor ends it: a peer, another thread.
  virtual bool ends_elsewhere() const { return true; }
  // Time alone will end it (an emulated link is busy).
  virtual bool ends_in_time() const { return false; }

  bool linked() const noexcept { return next_ != nullptr; }

 protected:
  Waiting() = default;
  ~Waiting() { unlink(); }
  Branch& branch() const noexcept { return *branch_; }  // that is suspended in it
  void unlink() noexcept {                              // out of its queue
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
  std::int64_t head_since_ns_ = 0;  // 0: not the head yet, or over when it became that
  Waiting* next_ = nullptr;
  Waiting* previous_ = nullptr;
};

}  // namespace coshard
