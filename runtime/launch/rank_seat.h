#pragma once
// The context and executor of one rank of this process. Owned by run_ranks from before the rank's
// thread starts until all ranks have ended, since user threads may still post to the executor of a
// rank that has ended.
#include <memory>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/rank_context.h>
#include "runtime/coro/census.h"

namespace coshard {

class RankSeat {
 public:
  RankSeat() = default;
  RankSeat(const RankSeat&) = delete;
  RankSeat& operator=(const RankSeat&) = delete;

  Executor& executor() noexcept { return *executor_; }
  // Before the rank starts.
  void count_in(Sleeper* sleeper) {  // null: not in a census
    context_.sleeper = sleeper;
    parker_.count(sleeper);
  }
  // The rank has ended. On its thread.
  void leave_census() {
    if (context_.sleeper == nullptr) return;
    context_.sleeper->census().leave(*context_.sleeper);
    context_.sleeper = nullptr;
  }

  // While alive, the calling thread is the rank's; the destructor destroys the rank's values, on
  // that thread.
  class Taken {
   public:
    explicit Taken(RankSeat& seat) : seat_(seat), before_(RankContext::exchange(&seat.context_)) {}
    ~Taken() {
      seat_.context_.end();
      RankContext::exchange(before_);
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

   private:
    RankSeat& seat_;
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

  ThreadParker bed_;
  CountedParker parker_{bed_};
  RankContext context_{&parker_};
  std::unique_ptr<Executor> executor_ = made_in(context_);
};

}  // namespace coshard
