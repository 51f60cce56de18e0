#include "runtime/coro/deadline.h"

#include <array>
#include <boost/asio/steady_timer.hpp>

#include "runtime/coro/asio.h"
#include "runtime/coro/executor.h"

namespace coshard {

Task<void> sleep_for(std::chrono::nanoseconds duration, std::stop_token stop) {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, "sleep_for: no executor runs on this thread");
  boost::asio::steady_timer timer(executor->asio_executor(), duration);
  Task<void> wait = timer.async_wait(use_task(std::move(stop)));
  co_await std::move(wait);
}

std::string to_string(std::chrono::nanoseconds duration) {
  struct Unit {
    std::int64_t ns;
    const char* name;
  };
  static constexpr std::array<Unit, 3> kUnits{
      {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}}};
  for (const Unit& unit : kUnits)
    if (duration.count() >= unit.ns)
      return cat(static_cast<double>(duration.count()) / static_cast<double>(unit.ns), ' ',
                 unit.name);
  return cat(duration.count(), " ns");
}

struct Deadline::State {
  State(const boost::asio::any_io_executor& executor, std::chrono::nanoseconds limit)
      : timer(executor, limit) {}
  boost::asio::steady_timer timer;
  std::stop_source stop;
  bool passed = false;
  bool over = false;  // the work has ended: a handler that comes now is late
};

namespace {
const boost::asio::any_io_executor& executor_here() {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, "with_deadline: no executor runs on this thread");
  return executor->asio_executor();
}
}  // namespace

Deadline::Deadline(std::chrono::nanoseconds limit, std::string what, std::stop_token outer)
    : state_(std::make_shared<State>(executor_here(), limit)),
      what_(std::move(what)),
      limit_(limit),
      outer_(std::move(outer), [stop = state_->stop]() mutable { stop.request_stop(); }) {
  state_->timer.async_wait([state = state_](const boost::system::error_code& error) {
    if (error || state->over) return;
    state->passed = true;
    state->stop.request_stop();
  });
}

Deadline::~Deadline() {
  state_->over = true;
  state_->timer.cancel();
}

std::stop_token Deadline::token() const { return state_->stop.get_token(); }

void Deadline::check(const std::exception_ptr& ended_with) const {
  if (!state_->passed) return;
  std::string message = cat(what_, ": not finished after ", to_string(limit_));
  try {
    if (ended_with) std::rethrow_exception(ended_with);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Cancelled) message += cat("; it ended with: ", error.what());
  } catch (const std::exception& error) {
    message += cat("; it ended with: ", error.what());
  } catch (...) {
    message += "; it ended with an unknown exception";
  }
  fail(ErrorKind::Timeout, message);
}

}  // namespace coshard
