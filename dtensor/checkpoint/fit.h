#pragma once
// Which values fit which tensors of a state, and what errors say of those that do not. Pure.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/runtime/error.h>

namespace coshard {

bool may_be_cast(DType from, DType to, Cast cast);

// "'a', 'b', 'c', 'd', 'e' and 7 more"
std::string first_of(const std::vector<std::string>& names);

// What does not fit: all of it, of which an error names the first.
class Complaints {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kNamed) text_ += str_cat(text_.empty() ? "" : "; ", parts...);
  }
  // "'w' is F32 there and bf16 here"
  void add_type(std::string_view name, std::string_view there, DType here, bool castable);
  // What the strict ones of LoadOptions say of a report.
  void add_names(const LoadReport& report);
  // Error{BadInput}: "load: model: …".
  void require_none(std::string_view who) const;

 private:
  static constexpr std::size_t kNamed = 8;
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace coshard
