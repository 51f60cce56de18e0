#include "runtime/launch/rank_fibers.h"

namespace coshard {

RankFibers::RankFibers(FiberPolicy* policy) : thread_(policy) {
  thread_.on_switch([this](int fiber) { switched(fiber); });
}

// A fiber that is nobody's has no rank.
void RankFibers::switched(int fiber) {
  const auto index = static_cast<std::size_t>(fiber);
  if (fiber < 0 || index >= ranks_.size()) {
    RankContext::exchange(nullptr);
    return;
  }
  RankContext::exchange(ranks_[index]->context);
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
  RankContext context(&*rank.parker);
  if (program.sleeper) {
    context.sleeper = program.sleeper(rank.number);
    rank.parker->count(context.sleeper);
  }
  rank.context = &context;
  RankContext::exchange(&context);
  try {
    rank.executor = std::make_unique<Executor>(thread);
    program.run(rank.number, *rank.executor);
  } catch (...) {
    program.failed(rank.number, std::current_exception());
  }
  if (context.sleeper != nullptr)
    context.sleeper->census().leave(*std::exchange(context.sleeper, nullptr));
  program.ended(rank.number);
  rank.context = nullptr;
}

void RankFibers::run() { thread_.run(); }

}  // namespace coshard
