#pragma once
// What memory is for, as out-of-memory errors tell it.
#include <string_view>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

// What allocations of this rank are for until the end of the scope: operators' names and the
// like.
class AllocationLabel {
 public:
  explicit AllocationLabel(std::string_view label) : before_(current()) { set(label); }
  ~AllocationLabel() { set(before_); }
  AllocationLabel(const AllocationLabel&) = delete;
  AllocationLabel& operator=(const AllocationLabel&) = delete;
  static std::string_view current() { return RankContext::current().allocations_are_for; }

 private:
  static void set(std::string_view label) { RankContext::current().allocations_are_for = label; }
  std::string_view before_;
};

}  // namespace coshard
