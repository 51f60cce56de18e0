#pragma once
// Private to the executor: its Asio side, and the scope that makes it the thread's current
// executor.
#include <algorithm>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/stack_room.h>
#include "runtime/coro/asio_gate.h"

namespace coshard {

struct Executor::Asio {
  explicit Asio(std::unique_ptr<boost::asio::io_context> made)
      : own(std::move(made)), context(own.get()), executor(own->get_executor()) {}
  explicit Asio(boost::asio::io_context& shared)
      : context(&shared), executor(shared.get_executor()) {}
  explicit Asio(const boost::asio::any_io_executor& target) : executor(target) {
    const boost::asio::steady_timer first(executor);  // its service is older than the gate
    gate = AsioGateService::gate_of(executor.context());
  }

  std::unique_ptr<boost::asio::io_context> own;
  boost::asio::io_context* context = nullptr;  // the rank's; null: it lives on the user's
  boost::asio::any_io_executor executor;
  boost::asio::any_io_executor gated;  // null: not requested yet
  std::atomic<bool> used{false};       // it was requested, so it may have work

  // On the user's context:
  std::shared_ptr<AsioGate> gate;
  std::weak_ptr<void> owner;  // set by launch(), before any unpark()
  std::coroutine_handle<> root;
  std::function<void(std::exception_ptr)> finished;  // null: not launched, or over
  std::atomic<bool> pump_posted{false};              // and has not started
  std::optional<boost::asio::steady_timer> alarm;
  std::int64_t alarm_ns = -1;  // when it fires; 0: never; -1: not set
  int alarms_out = 0;          // its handlers that have yet to run; each holds the owner
};

// On the user's context: unpark() posts a pump there. Only a wait in place blocks the thread. Peers
// may wake it until the executor has stopped listening to their events.
class Executor::PumpParker final : public Parker {
 public:
  explicit PumpParker(Executor& executor) : executor_(executor) {}
  void park(std::int64_t deadline_ns, boost::asio::io_context*) override {
    in_place_.park(deadline_ns);
  }
  void unpark() noexcept override {
    in_place_.unpark();
    executor_.post_pump();
  }
  std::int64_t now() const override { return in_place_.now(); }
  bool shares_its_thread() const override { return false; }

 private:
  Executor& executor_;
  ThreadParker in_place_;
};

// Makes the executor this thread's current one for a scope.
class Executor::Running {
 public:
  explicit Running(Executor& executor)
      : context_(*executor.context_),
        thread_(RankContext::exchange(&context_)),
        before_(std::exchange(context_.executor, &executor)),
        branch_(context_.branch()) {
    StackRoom::know();
  }
  ~Running() {
    context_.set_branch(branch_);
    context_.executor = before_;
    RankContext::exchange(thread_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  RankContext& context_;
  RankContext* thread_;
  Executor* before_;
  Branch& branch_;
};

constexpr std::size_t kFirstCapacity = 64;
constexpr std::int64_t kPollNs = 200'000;  // for a wait that no wake-up ends

// The earlier of two times; 0: none.
inline std::int64_t earlier(std::int64_t a, std::int64_t b) {
  return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

}  // namespace coshard
