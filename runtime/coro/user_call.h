#pragma once
// Which line of the user's program the library works for. A public function that may communicate
// takes `CallSite site = CallSite::current()` as its last argument and keeps a UserCall while it
// works; a coroutine keeps it across its awaits. What is issued meanwhile, by whatever lies
// between, names that line. Of nested calls the innermost one from user code counts: a redistribute
// in the forward of the user's own module names its line there, one of the library's modules the
// line that called it. The place belongs to the branch; children of a when_all begin with their
// parent's.
#include <string_view>
#include <utility>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

class [[nodiscard]] UserCall {
 public:
  // A site that is not known (the library calls itself) changes nothing.
  explicit UserCall(CallSite site) noexcept {
    if (!site.known()) return;
    branch_ = &RankContext::current().branch();
    before_ = std::exchange(branch_->place.site, site);
  }
  // A coroutine that is dropped may outlive its branch.
  ~UserCall() {
    if (branch_ != nullptr && branch_ == &RankContext::current().branch())
      branch_->place.site = before_;
  }
  UserCall(const UserCall&) = delete;
  UserCall& operator=(const UserCall&) = delete;

 private:
  Branch* branch_ = nullptr;
  CallSite before_;
};

// While one lives, `word` is the operator, or the module, that the library works for.
template <std::string_view Place::*word>
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
using WithinOperator = Within<&Place::operation>;
using WithinModule = Within<&Place::module>;

}  // namespace coshard
