#include <coshard/dtensor/tensor/waits_in_place.h>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {
namespace {

const RankLocal<WaitsInPlace> counted;

}  // namespace

const WaitsInPlace& waits_in_place() { return *counted; }
void clear_waits_in_place() { counted->clear(); }

void count_wait_in_place(std::string_view who) {
  const auto found = counted->find(who);
  if (found != counted->end()) {
    ++found->second;
  } else {
    counted->emplace(who, 1);
  }
}

}  // namespace coshard
