#pragma once
// The line of the user's program that the library is working for. A public function that may
// communicate takes `CallSite site = CallSite::current()` as its last argument and holds a UserCall
// while it works; a coroutine holds it across its awaits. Collectives and kernels issued within
// that scope name that line. Of nested calls, the innermost one from user code counts: a
// redistribute in the forward of the user's own module names its line there; one in a library
// module names the line that called the module. The location belongs to the branch; children of a
// when_all start with their parent's.
#include <string_view>
#include <utility>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

class [[nodiscard]] UserCall {
 public:
  // An unknown site (a call from the library itself) changes nothing.
  explicit UserCall(CallSite site, std::string_view called = {}) noexcept {
    if (!site.known()) return;
    branch_ = &RankContext::current().branch();
    before_ = std::exchange(branch_->place.site, site);
    branch_->place.last = site;
    called_before_ = std::exchange(branch_->place.called, called);
  }
  // A destroyed coroutine may have outlived its branch.
  ~UserCall() {
    if (branch_ == nullptr || branch_ != &RankContext::current().branch()) return;
    branch_->place.site = before_;
    branch_->place.called = called_before_;
  }
  UserCall(const UserCall&) = delete;
  UserCall& operator=(const UserCall&) = delete;

 private:
  Branch* branch_ = nullptr;
  CallSite before_;
  std::string_view called_before_;
};

// The site of a constructor: if std::make_unique calls it, the user's line that called the library
// last, such as for the arguments.
inline CallSite constructed_at(CallSite site) noexcept {
  const bool in_standard =
      std::string_view(site.file).find("/include/c++/") != std::string_view::npos;
  return in_standard ? RankContext::current().branch().place.last : site;
}

// In an operator: errors name it as the user called it, sub_ rather than the add that it runs.
class [[nodiscard]] OperatorCall : public UserCall {
 public:
  explicit OperatorCall(CallSite site, const char* name = __builtin_FUNCTION()) noexcept
      : UserCall(site, name) {}
};
// The operator that the user called; `op` if the library calls it.
inline std::string_view called_or(std::string_view op) noexcept {
  const std::string_view called = RankContext::current().branch().place.called;
  return called.empty() ? op : called;
}

// For its scope, sets the operator or the module (`word`) that the library is working for.
template <std::string_view CallLocation::*word>
class [[nodiscard]] Within {
 public:
  explicit Within(std::string_view text) noexcept
      : branch_(&RankContext::current().branch()),
        before_(std::exchange(branch_->place.*word, text)) {}
  ~Within() {
    if (branch_ == &RankContext::current().branch()) branch_->place.*word = before_;
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Branch* branch_;
  std::string_view before_;
};
using WithinOperator = Within<&CallLocation::operation>;
using WithinModule = Within<&CallLocation::module>;

}  // namespace coshard
