#pragma once
// Awaitables of somebody else's library, which knows nothing of coshard.
#include <coroutine>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

namespace coshard::testing {

// Nobody resumes it.
struct Never {
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<>) const {}
  void await_resume() const {}
};

// Resumed by whoever takes its handle.
struct Held {
  std::coroutine_handle<>& given;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) const { given = self; }
  void await_resume() const {}
};

// Resumes once it is asked to stop.
struct Stoppable {
  std::optional<std::stop_callback<std::function<void()>>>& callback;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self, std::stop_token stop) const {
    callback.emplace(std::move(stop), [self] { self.resume(); });
  }
  void await_resume() const {}
};

}  // namespace coshard::testing
