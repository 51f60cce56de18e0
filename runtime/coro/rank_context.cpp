#include <coshard/runtime/coro/rank_context.h>

#include <atomic>
#include <utility>

namespace coshard {

RankContext::RankContext(Parker* parker) : parker_(parker != nullptr ? parker : &own_parker_) {}

RankContext::~RankContext() {
  end();
  if (current_ == this) current_ = nullptr;
}

void RankContext::end() noexcept {
  // A value may use others during its destruction: destroys newest first.
  while (!made_.empty()) {
    const int index = made_.back();
    made_.pop_back();
    Slot gone = std::exchange(slots_[static_cast<std::size_t>(index)], Slot{});
    gone.destroy(gone.value);
  }
  root_.forget();
}

RankContext* RankContext::exchange(RankContext* context) noexcept {
  return std::exchange(current_, context);
}

RankContext& RankContext::of_this_thread() noexcept {
  static thread_local RankContext own;
  current_ = &own;
  return own;
}

int RankContext::new_slot() {
  static std::atomic<int> count{0};
  return count.fetch_add(1);
}

}  // namespace coshard
