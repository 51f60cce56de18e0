#pragma once
// This rank's work that follows a collective: a copy, a cast, a local step of a plan. Run by
// whoever needs it first: this rank when it waits, or any thread whose collective depends on it.
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/error.h>

namespace coshard {

// Whether giving up an await of this counts as giving up what it follows.
enum class GivenUp : bool { Noted, Unnoted };

// `before` must have been issued.
class FollowUp final : public WorkState {
 public:
  // `before` may be null: nothing to wait for.
  FollowUp(std::shared_ptr<WorkState> before, std::function<void()> follow,
           GivenUp given_up = GivenUp::Noted)
      : before_(std::move(before)), follow_(std::move(follow)), given_up_(given_up) {}

  bool ready() override {
    if (done()) return true;
    if (before_ && !before_->ready()) return false;
    wait();
    return true;
  }
  void wait() override;
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }
  Look look(int) override { return done() || !before_ ? Look::Over : before_->look(-1); }
  void begin_wait() override {
    if (before_) before_->begin_wait();
  }
  void end_wait() override {
    if (before_) before_->end_wait();
  }
  bool listen(Parker& parker) override { return !before_ || before_->listen(parker); }
  void deaf(Parker& parker) noexcept override {
    if (before_) before_->deaf(parker);
  }
  void check(std::int64_t waited_ns) override {
    if (before_ && !done()) before_->check(waited_ns);
  }
  std::int64_t timeout_ns() const override { return before_ ? before_->timeout_ns() : 0; }
  std::int64_t not_before(int) const override {
    return before_ && !done() ? before_->not_before(-1) : 0;
  }
  std::string describe() const override { return before_ ? before_->describe() : "a local step"; }
  void on_wait_abandoned() override {
    // Regardless of who ran the rest, and when.
    if (before_ && given_up_ == GivenUp::Noted) before_->on_wait_abandoned();
  }
  void poison(const std::string& cause) override {
    if (before_ && !done()) before_->poison(cause);
  }
  bool waits_for_peers() const override { return !before_ || before_->waits_for_peers(); }
  bool any_thread() const override { return !before_ || before_->any_thread(); }
  Look push() override;
  std::string failure() const override {
    if (done()) return error_ ? text_of(error_) : "";
    return before_ ? before_->failure() : "";
  }
  void mark_has_dependents() override {
    if (before_) before_->mark_has_dependents();
  }
  void dependent_awaited() override {
    if (before_) before_->dependent_awaited();
  }

 private:
  // Todo -> Doing (by compare-exchange: one thread) -> Done (release: the data are there).
  enum class State : std::uint8_t { Todo, Doing, Done };
  bool done() const { return state_.load(std::memory_order_acquire) == State::Done; }
  bool follow_now();

  std::shared_ptr<WorkState> before_;
  std::function<void()> follow_;
  GivenUp given_up_;
  std::atomic<State> state_{State::Todo};
  std::exception_ptr error_;  // what it threw; set before Done
};

}  // namespace coshard
