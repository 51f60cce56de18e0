#include <coshard/runtime/coro/branch.h>

#include <atomic>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/coro/deadline_passed.h"

namespace coshard {
namespace {

// Written before any rank runs.
std::vector<BranchForked>& fork_hooks() {
  static std::vector<BranchForked> hooks;
  return hooks;
}

std::uint64_t mixed(std::uint64_t id, std::uint64_t position) {
  id = (id ^ (position + 1)) * 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio
  return id ^ (id >> 29);
}

}  // namespace

bool on_branch_fork(BranchForked hook) {
  fork_hooks().push_back(hook);
  return true;
}

int Branch::new_slot() {
  static std::atomic<int> count{0};
  return count.fetch_add(1);
}

Branch::Branch() = default;

Branch::Branch(Branch& parent, int position, const std::string& name)
    : unordered(parent.unordered),
      place(parent.place),
      parent_(&parent),
      id_(mixed(parent.id_, static_cast<std::uint64_t>(position))),
      position_(position),
      depth_(parent.depth_ + 1),
      name_(name),
      slots_(parent.slots_) {
  for (Slot& slot : slots_) slot.destroy = nullptr;
  for (const BranchForked hook : fork_hooks()) hook(parent, *this, position);
}

Branch::~Branch() { forget(); }

void Branch::forget() noexcept {
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot)
    if (slot->destroy != nullptr) std::exchange(slot->destroy, nullptr)(slot->value);
  slots_.clear();
}

const std::shared_ptr<const std::string>& Branch::child_path() const {
  if (path_ != nullptr || is_main()) return path_;
  constexpr int kNamed = 16;
  std::vector<const Branch*> named;
  for (const Branch* b = this; !b->is_main() && std::ssize(named) < kNamed; b = b->parent_)
    named.push_back(b);
  std::string text = depth_ > kNamed ? str_cat('(', depth_ - kNamed, " more)") : "";
  for (auto b = named.rbegin(); b != named.rend(); ++b) {
    if (!text.empty()) text += '.';
    text += (*b)->name_.empty() ? str_cat((*b)->position_) : (*b)->name_;
  }
  path_ = std::make_shared<const std::string>(std::move(text));
  return path_;
}

Branch& Branch::current() noexcept { return RankContext::current().branch(); }

const std::exception_ptr& Branch::cancelled_within() const noexcept { return cancelled_->cause_; }

void Branch::cancel(const std::exception_ptr& cause) {
  if (cause_ && (is_past_a_deadline(cause_) || !is_past_a_deadline(cause))) return;
  cause_ = cause;
  for (CancelScope* scope = innermost_; scope != nullptr; scope = scope->outer_)
    scope->stop_.request_stop();
  if (stop_) stop_->request_stop();
  end_wait();
}

// Ends the suspension the branch is in, or its held yield.
void Branch::end_wait() {
  if (suspended != nullptr) return std::exchange(suspended, nullptr)->give_up();
  if (Executor* executor = RankContext::current().executor) executor->release_cancelled();
}

std::stop_token Branch::stop_token() {
  if (innermost_ != nullptr) return innermost_->stop_token();
  if (!stop_) {
    stop_.emplace();
    if (cause_) stop_->request_stop();
  }
  return stop_->get_token();
}

CancelScope::CancelScope()
    : branch_(Branch::current()),
      outer_(branch_.innermost_),
      depth_(outer_ != nullptr ? outer_->depth_ + 1 : 0) {
  branch_.innermost_ = this;
  if (branch_.cancelled()) stop_.request_stop();
}

CancelScope::~CancelScope() {
  branch_.innermost_ = outer_;
  if (branch_.cancelled_ != this) return;
  CancelScope* scope = outer_;
  while (scope != nullptr && !scope->cause_) scope = scope->outer_;
  branch_.cancelled_ = scope;
}

void CancelScope::cancel(const std::exception_ptr& cause) {
  if (cause_) return;
  cause_ = cause;
  CancelScope* const before = branch_.cancelled_;
  const bool within = before != nullptr && before->depth_ > depth_;
  if (!within) branch_.cancelled_ = this;
  // The scopes within one that was cancelled have been asked.
  CancelScope* scope = within ? before->outer_ : branch_.innermost_;
  if (stop_.stop_requested()) scope = outer_;
  for (; scope != outer_; scope = scope->outer_) scope->stop_.request_stop();
  branch_.end_wait();
}

std::stop_token CancelScope::stop_token() { return stop_.get_token(); }

}  // namespace coshard
