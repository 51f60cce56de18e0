#pragma once
// What memory is for, as out-of-memory errors tell it.
#include <string_view>

namespace coshard {

// What allocations of this thread are for until the end of the scope: operators' names and the
// like.
class AllocationLabel {
 public:
  explicit AllocationLabel(std::string_view label) : before_(current_) { current_ = label; }
  ~AllocationLabel() { current_ = before_; }
  AllocationLabel(const AllocationLabel&) = delete;
  AllocationLabel& operator=(const AllocationLabel&) = delete;
  static std::string_view current() { return current_; }

 private:
  inline static constinit thread_local std::string_view current_ = "";
  std::string_view before_;
};

}  // namespace coshard
