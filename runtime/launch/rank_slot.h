#pragma once
// The context and executor of one rank of this process. Owned by run_ranks from before the rank's
// thread starts until all ranks have ended, since user threads may still post to the executor of a
// rank that has ended.
#include <memory>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/rank_context.h>
#include "runtime/coro/deadlock_detector.h"

namespace coshard {

class RankSlot {
 public:
  RankSlot() = default;
  RankSlot(const RankSlot&) = delete;
  RankSlot& operator=(const RankSlot&) = delete;

  Executor& executor() noexcept { return *executor_; }
  // Before the rank starts.
  void count_in(WaiterState* waiter_state) {  // null: not in a deadlock detector
    context_.waiter_state = waiter_state;
    parker_.count(waiter_state);
  }
  // The rank has ended. On its thread.
  void leave_census() {
    if (context_.waiter_state == nullptr) return;
    context_.waiter_state->deadlock_detector().leave(*context_.waiter_state);
    context_.waiter_state = nullptr;
  }

  // While alive, the calling thread is the rank's; the destructor destroys the rank's values, on
  // that thread.
  class Scope {
   public:
    explicit Scope(RankSlot& seat) : seat_(seat), before_(RankContext::exchange(&seat.context_)) {}
    ~Scope() {
      seat_.context_.end();
      RankContext::exchange(before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankSlot& seat_;
    RankContext* before_;
  };

 private:
  // Makes a context current while its executor is constructed.
  struct Current {
    explicit Current(RankContext& context) : before(RankContext::exchange(&context)) {}
    ~Current() { RankContext::exchange(before); }
    RankContext* before;
  };
  static std::unique_ptr<Executor> made_in(RankContext& context) {
    const Current current(context);
    return std::make_unique<Executor>();
  }

  ThreadParker thread_parker_;
  CountedParker parker_{thread_parker_};
  RankContext context_{&parker_};
  std::unique_ptr<Executor> executor_ = made_in(context_);
};

}  // namespace coshard
