#include "runtime/launch/rank_fibers.h"

#include <algorithm>

#include "runtime/launch/insist.h"

namespace coshard {

RankFibers::RankFibers(std::size_t stack_bytes, FiberPolicy* policy)
    : thread_(policy, stack_bytes) {
  thread_.on_switch([this](int fiber) { switched(fiber); });
}

// Fibers beyond the ranks belong to no rank.
void RankFibers::switched(int fiber) {
  const auto index = static_cast<std::size_t>(fiber);
  if (fiber < 0 || index >= ranks_.size()) {
    RankContext::exchange(nullptr);
    return;
  }
  Rank& rank = *ranks_[index];
  RankContext::exchange(rank.lives ? &*rank.context : nullptr);
  if (on_turn_) on_turn_(ranks_[index]->number);
}

void RankFibers::add(int rank, const RankProgram& program) {
  ranks_.push_back(std::make_unique<Rank>());
  Rank& added = *ranks_.back();
  added.number = rank;
  thread_.spawn(
      [&added, this, &program](Parker& parker) { live(added, parker, thread_, program); });
}

void RankFibers::live(Rank& rank, Parker& parker, FiberThread& thread, const RankProgram& program) {
  rank.parker.emplace(parker);
  RankContext& context = rank.context.emplace(&*rank.parker);
  if (program.waiter_state) {
    context.waiter_state = program.waiter_state(rank.number);
    rank.parker->count(context.waiter_state);
  }
  rank.lives = true;
  RankContext::exchange(&context);
  try {
    rank.executor = std::make_unique<Executor>(thread);
    program.run(rank.number, *rank.executor);
  } catch (...) {
    program.failed(rank.number, std::current_exception());
  }
  if (context.waiter_state != nullptr)
    insist([&] { context.waiter_state->deadlock_detector().leave(*context.waiter_state); });
  context.waiter_state = nullptr;
  context.end();
  program.ended(rank.number);
  rank.ended = true;
  rank.lives = false;
}

bool RankFibers::ended(int rank) const {
  return std::ranges::any_of(ranks_,
                             [rank](const auto& r) { return r->number == rank && r->ended; });
}

void RankFibers::run() { thread_.run(); }

}  // namespace coshard
