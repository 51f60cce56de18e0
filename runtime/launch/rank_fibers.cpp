#include "runtime/launch/rank_fibers.h"

namespace coshard {

RankFibers::RankFibers(FiberPolicy* policy) : thread_(policy) {
  thread_.on_switch([this](int fiber) {
    const auto index = static_cast<std::size_t>(fiber);
    RankContext* context = fiber < 0 || index >= ranks_.size() ? nullptr : ranks_[index]->context;
    RankContext::exchange(context);
  });
}

void RankFibers::add(int rank, const RankProgram& program) {
  ranks_.push_back(std::make_unique<Rank>());
  Rank& added = *ranks_.back();
  added.number = rank;
  thread_.spawn(
      [&added, this, &program](Parker& parker) { live(added, parker, thread_, program); });
}

void RankFibers::live(Rank& rank, Parker& parker, FiberThread& thread, const RankProgram& program) {
  RankContext context(&parker);
  rank.context = &context;
  RankContext::exchange(&context);
  try {
    rank.executor = std::make_unique<Executor>(thread);
    program.run(rank.number, *rank.executor);
  } catch (...) {
    program.failed(rank.number, std::current_exception());
  }
  rank.context = nullptr;
}

void RankFibers::run() { thread_.run(); }

}  // namespace coshard
