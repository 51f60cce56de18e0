#pragma once
// The purpose of an allocation, named in out-of-memory errors.
#include <string_view>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

// Labels this rank's allocations until the end of the scope: an operator's name, for example.
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
