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
      : WorkState(std::move(before)), follow_(std::move(follow)), given_up_(given_up) {}

  Poll poll(Poller by, int part) override;
  void wait(int part) override;
  void check(std::int64_t waited_ns) override {
    if (!done()) WorkState::check(waited_ns);
  }
  void cancel(const std::string& cause) override {
    if (!done()) WorkState::cancel(cause);
  }
  void note(WorkEvent event) override {
    // Regardless of who ran the rest, and when.
    if (event != WorkEvent::Abandoned || given_up_ == GivenUp::Noted) WorkState::note(event);
  }
  bool subscribe(Parker& parker) override {
    return inner() == nullptr || WorkState::subscribe(parker);
  }
  WorkInfo info(int part) const override;
  std::string describe() const override {
    return inner() == nullptr ? "a local step" : inner()->describe();
  }
  std::string failure() const override {
    if (done()) return error_ ? text_of(error_) : "";
    return WorkState::failure();
  }

 private:
  // Todo -> Doing (by compare-exchange: one thread) -> Done (release: the data are there).
  enum class State : std::uint8_t { Todo, Doing, Done };
  bool done() const { return state_.load(std::memory_order_acquire) == State::Done; }
  Poll poll_any_thread();
  bool follow_now();

  std::function<void()> follow_;
  GivenUp given_up_;
  std::atomic<State> state_{State::Todo};
  std::exception_ptr error_;  // what it threw; set before Done
};

}  // namespace coshard
