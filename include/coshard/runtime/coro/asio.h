#pragma once
// Boost.Asio operations inside tasks: the completion token `use_task` turns any Asio operation into
// a Task: co_await timer.async_wait(use_task). Heavy: include it in sources, not in widely used
// headers.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Completion token: the operation becomes a lazy Task, started by its first co_await, which resumes
// through the ready queue of the awaiting task's executor. Completion with
//   (error_code, values...)     -> boost::system::system_error, or the value (several: a tuple)
//   (exception_ptr, values...)  -> that exception, or the value
//   (values...)                 -> the value
// use_task(stop): a stop requested on any thread cancels the operation (terminal cancellation):
// Error{Cancelled}. Cancelling the awaiting branch (branch.h) does too. An operation that cannot be
// cancelled runs to completion on its own; if its rank is gone by then, its state is destroyed on
// the thread where it completes.
class UseTask {
 public:
  constexpr UseTask() = default;
  explicit UseTask(std::stop_token stop) : stop_(std::move(stop)) {}
  UseTask operator()(std::stop_token stop) const { return UseTask(std::move(stop)); }
  const std::stop_token& stop() const noexcept { return stop_; }

 private:
  std::stop_token stop_;
};
inline const UseTask use_task;

// The state shared by an operation in flight, its awaiting frame and its handler.
template <class... Args>
struct AsioOperation {
  std::optional<std::tuple<Args...>> result;
  std::coroutine_handle<> awaiter;  // null: not suspended, or gone
  Branch* branch = nullptr;         // the awaiter's
  bool open = true;                 // false: completed or given up
  boost::asio::cancellation_signal cancel;

  // Does nothing once the operation is closed: what it worked on may be gone.
  void emit() {
    if (open) cancel.emit(boost::asio::cancellation_type::terminal);
  }
};

// The completion handler: runs on the executor's Asio executor and queues the awaiter. If the
// operation outlives the executor, it is destroyed on the thread where the operation completes,
// without touching the executor.
template <class... Args>
class AsioHandler {
 public:
  using executor_type = boost::asio::any_io_executor;
  using cancellation_slot_type = boost::asio::cancellation_slot;

  AsioHandler(Executor& executor, std::shared_ptr<AsioOperation<Args...>> operation)
      : executor_(&executor),
        place_(executor.handler_executor()),
        keep_(executor.keep_alive()),
        under_way_(executor),
        operation_(std::move(operation)) {}
  executor_type get_executor() const noexcept { return place_; }
  cancellation_slot_type get_cancellation_slot() const noexcept {
    return operation_->cancel.slot();
  }

  template <class... Values>
  void operator()(Values&&... values) {
    operation_->open = false;
    operation_->result.emplace(std::forward<Values>(values)...);
    if (!operation_->awaiter) return;
    operation_->branch->suspended = nullptr;
    executor_->enqueue_from_handler(std::exchange(operation_->awaiter, {}), *operation_->branch);
  }

 private:
  Executor* executor_;  // valid whenever place_ runs anything
  executor_type place_;
  // The spawned task that this will resume, until it is resumed or given up.
  std::shared_ptr<void> keep_;
  Executor::Operation under_way_;
  std::shared_ptr<AsioOperation<Args...>> operation_;
};

template <class... Args>
class AsioAwaiter final : public Suspension {
 public:
  using awaitable_of_coshard = void;
  AsioAwaiter(Executor& executor, AsioOperation<Args...>& operation) noexcept
      : executor_(executor), operation_(operation) {}
  ~AsioAwaiter() {
    operation_.open = false;
    operation_.awaiter = {};
  }
  bool await_ready() const noexcept { return operation_.result.has_value(); }
  void await_suspend(std::coroutine_handle<> awaiter) noexcept {
    operation_.awaiter = awaiter;
    operation_.branch = &Branch::current();
    operation_.branch->suspended = this;
  }
  void await_resume() const { Branch::current().throw_if_cancelled(); }
  void give_up() noexcept override {
    // The operation uses the awaiter's memory until it completes, if it can be cancelled.
    if (operation_.cancel.slot().has_handler()) return operation_.emit();
    executor_.enqueue(std::exchange(operation_.awaiter, {}), *operation_.branch);
  }

 private:
  Executor& executor_;
  AsioOperation<Args...>& operation_;
};

// The result type of an operation that completes with `Args`. Does not inspect them: Asio also asks
// about signatures that are never used, with types that cannot be constructed.
template <class... Values>
struct AsioValue {
  using type = std::tuple<Values...>;
};
template <class Value>
struct AsioValue<Value> {
  using type = Value;
};
template <>
struct AsioValue<> {
  using type = void;
};
template <class... Args>
struct AsioOutcomeOf : AsioValue<Args...> {};
template <class... Values>
struct AsioOutcomeOf<boost::system::error_code, Values...> : AsioValue<Values...> {};
template <class... Values>
struct AsioOutcomeOf<std::exception_ptr, Values...> : AsioValue<Values...> {};
template <class... Args>
using AsioOutcome = typename AsioOutcomeOf<Args...>::type;

// The value of a completion: nothing, one value, or a tuple of several.
template <class... Values>
typename AsioValue<Values...>::type value_of(std::tuple<Values...>&& values) {
  if constexpr (sizeof...(Values) == 1) return std::get<0>(std::move(values));
  if constexpr (sizeof...(Values) > 1) return std::move(values);
}
template <class First, class... Rest>
std::tuple<Rest...> rest_of(std::tuple<First, Rest...>&& all) {
  return std::apply([](First&, Rest&... rest) { return std::tuple<Rest...>(std::move(rest)...); },
                    all);
}
template <class... Args>
AsioOutcome<Args...> outcome_of(std::tuple<Args...>&& all, const std::stop_token& stop) {
  if constexpr (sizeof...(Args) > 0) {
    using First = std::tuple_element_t<0, std::tuple<Args...>>;
    if constexpr (std::is_same_v<First, boost::system::error_code>) {
      const boost::system::error_code code = std::get<0>(all);
      if (code == boost::asio::error::operation_aborted && stop.stop_requested())
        fail(ErrorKind::Cancelled, "an Asio operation was cancelled: a stop was requested");
      if (code) throw boost::system::system_error(code);
      return value_of(rest_of(std::move(all)));
    } else if constexpr (std::is_same_v<First, std::exception_ptr>) {
      if (std::get<0>(all)) std::rethrow_exception(std::get<0>(all));
      return value_of(rest_of(std::move(all)));
    } else {
      return value_of(std::move(all));
    }
  }
}

// Turns a stop request on any thread into a cancellation on the executor's thread.
template <class... Args>
std::function<void()> cancel_on(Executor& executor,
                                const std::shared_ptr<AsioOperation<Args...>>& operation) {
  return [target = executor.asio_executor(), operation] {
    boost::asio::post(target, [operation] { operation->emit(); });
  };
}

template <class... Args, class Initiation, class... InitArgs>
Task<AsioOutcome<Args...>> start_asio_operation(std::stop_token stop, Initiation initiation,
                                                InitArgs... init_args) {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, "use_task: no executor runs on this thread");
  Branch::current().throw_if_cancelled();
  if (stop.stop_requested())
    fail(ErrorKind::Cancelled, "an Asio operation was not started: a stop was requested");
  auto operation = std::make_shared<AsioOperation<Args...>>();
  AsioHandler<Args...> handler(*executor, operation);  // an error in a simulation
  std::move(initiation)(std::move(handler), std::move(init_args)...);
  {
    const std::stop_callback on_stop(stop, cancel_on(*executor, operation));
    AsioAwaiter<Args...> awaiter(*executor, *operation);
    co_await awaiter;
  }
  std::tuple<Args...> all = std::move(*operation->result);
  if constexpr (std::is_void_v<AsioOutcome<Args...>>) {
    outcome_of(std::move(all), stop);
  } else {
    co_return outcome_of(std::move(all), stop);
  }
}

}  // namespace coshard
#pragma GCC visibility pop

template <class... Args>
class boost::asio::async_result<coshard::UseTask, void(Args...)> {
 public:
  template <class Initiation, class... InitArgs>
  static coshard::Task<coshard::AsioOutcome<std::decay_t<Args>...>> initiate(
      Initiation&& initiation, coshard::UseTask token, InitArgs&&... init_args) {
    return coshard::start_asio_operation<std::decay_t<Args>...>(
        token.stop(), std::decay_t<Initiation>(std::forward<Initiation>(initiation)),
        std::decay_t<InitArgs>(std::forward<InitArgs>(init_args))...);
  }
};
