#include <coshard/runtime/coro/branch.h>

#include <atomic>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>

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
      path_(std::make_shared<const std::string>(str_cat(parent.path_ ? *parent.path_ + '.' : "",
                                                        name.empty() ? str_cat(position) : name))) {
  for (const BranchForked hook : fork_hooks()) hook(parent, *this, position);
}

Branch::~Branch() { forget(); }

void Branch::forget() noexcept {
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot)
    if (slot->value != nullptr) slot->destroy(std::exchange(slot->value, nullptr));
}

Branch& Branch::current() noexcept { return RankContext::current().branch(); }

const std::exception_ptr& Branch::cancelled_within() const noexcept {
  for (const CancelScope* scope = innermost_; scope != nullptr; scope = scope->outer_)
    if (scope->cause_) return scope->cause_;
  return cause_;
}

void Branch::cancel(const std::exception_ptr& cause) {
  if (cause_) return;
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

CancelScope::CancelScope() : branch_(Branch::current()), outer_(branch_.innermost_) {
  branch_.innermost_ = this;
  if (branch_.cancelled()) stop_.request_stop();
}

CancelScope::~CancelScope() { branch_.innermost_ = outer_; }

void CancelScope::cancel(const std::exception_ptr& cause) {
  if (cause_) return;
  cause_ = cause;
  for (CancelScope* scope = branch_.innermost_; scope != outer_; scope = scope->outer_)
    scope->stop_.request_stop();
  branch_.end_wait();
}

std::stop_token CancelScope::stop_token() { return stop_.get_token(); }

}  // namespace coshard
