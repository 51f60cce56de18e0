#pragma once
// What one rank of this process runs on: its context and its executor. Owned by run_ranks from
// before the rank's thread starts until all of them have ended, since threads of the user's own may
// still post to the executor of a rank that is over.
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
  void count_in(Sleeper* sleeper) {  // null: it is in no census
    context_.sleeper = sleeper;
    parker_.count(sleeper);
  }
  // The rank is over, in its thread.
  void leave_census() {
    if (context_.sleeper == nullptr) return;
    context_.sleeper->census().leave(*std::exchange(context_.sleeper, nullptr));
  }

  // While it lives its thread is the rank's; at its end the rank's values go, on that thread.
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
  // Makes a context the current one while the executor is made, which is then its.
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
