#pragma once
// co_spawn: runs a Task on the user's own Asio executor (io_context, strand, thread_pool), with any
// completion token. The task gets its own Executor there, so that yield, sleep_for and use_task
// work inside it; it runs in one handler at a time. If the user's context is destroyed first, so is
// the task. The handler's cancellation slot cancels the task: its awaits throw Error{Cancelled}.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

template <class T>
struct SpawnSignature {
  using type = void(std::exception_ptr, T);
};
template <>
struct SpawnSignature<void> {
  using type = void(std::exception_ptr);
};

// A task on the user's executor, with its completion handler. Owned by the Asio handlers that will
// resume it.
template <class T, class Handler>
class Spawned : public std::enable_shared_from_this<Spawned<T, Handler>> {
 public:
  Spawned(const boost::asio::any_io_executor& target, Task<T> task, Handler handler,
          Executor* beside)
      : handler_(std::move(handler)),
        work_(boost::asio::make_work_guard(handler_, target)),
        executor_(target, beside),
        task_(std::move(task)),
        beside_(beside) {}
  ~Spawned() { destroy(); }
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;

  void start() {
    if (beside_ != nullptr) {
      beside_->add_beside(this->weak_from_this(), [this] { destroy(); });
      counted_.emplace(*beside_);
    }
    auto slot = boost::asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected())
      slot.assign([weak = this->weak_from_this()](boost::asio::cancellation_type) {
        if (const auto self = weak.lock()) self->cancel();
      });
    executor_.launch(task_.handle(), this->shared_from_this(),
                     [this](std::exception_ptr error) { finish(std::move(error)); });
  }

 private:
  // Called when its context is destroyed, or the program that it runs beside; destroys its state
  // too.
  void destroy() {
    if (std::exchange(over_, true)) return;
    executor_.run_here([this] {
      executor_.unsubscribe_all();
      task_ = Task<T>();
      executor_.discard();
    });
    counted_.reset();
    work_.reset();
  }
  void cancel() {
    executor_.interrupt(std::make_exception_ptr(
        Error(ErrorKind::Cancelled, "cancelled through the cancellation slot of its completion")));
  }

  // Takes the task's outcome: its exception; null: it succeeded and, unless void, set `value`.
  template <class Value>
  std::exception_ptr take(std::exception_ptr error, std::optional<Value>& value) {
    executor_.run_here([&] {
      try {
        if (error) {
        } else if constexpr (std::is_void_v<T>) {
          task_.take();
        } else {
          value.emplace(task_.take());
        }
      } catch (...) {
        error = std::current_exception();
      }
      task_ = Task<T>();
    });
    over_ = true;
    counted_.reset();
    return error;
  }

  void finish(std::exception_ptr error) {
    auto target = work_.get_executor();
    if constexpr (std::is_void_v<T>) {
      std::optional<int> nothing;
      error = take(std::move(error), nothing);
      boost::asio::dispatch(
          target, [handler = std::move(handler_), error]() mutable { std::move(handler)(error); });
    } else {
      std::optional<T> value;
      error = take(std::move(error), value);
      if constexpr (std::is_default_constructible_v<T>) {
        if (!value) value.emplace();
      }
      boost::asio::dispatch(
          target, [handler = std::move(handler_), error, value = std::move(value)]() mutable {
            std::move(handler)(error, std::move(*value));
          });
    }
    work_.reset();
  }

  Handler handler_;
  decltype(boost::asio::make_work_guard(std::declval<Handler&>(),
                                        std::declval<const boost::asio::any_io_executor&>())) work_;
  Executor executor_;
  Task<T> task_;
  Executor* beside_;                            // null: it has its own state
  std::optional<Executor::Operation> counted_;  // in beside_
  bool over_ = false;
};

struct StartSpawned {
  template <class Handler, class T>
  void operator()(Handler&& handler, boost::asio::any_io_executor target, Task<T> task) const {
    using State = Spawned<T, std::decay_t<Handler>>;
    std::make_shared<State>(target, std::move(task), std::forward<Handler>(handler),
                            Executor::current_on(target))
        ->start();
  }
  // On the rank's thread, with its state current.
  template <class Handler, class T>
  void operator()(Handler&& handler, Executor* rank, Task<T> task) const {
    using State = Spawned<T, std::decay_t<Handler>>;
    struct Parts {
      std::decay_t<Handler> handler;
      Task<T> task;
    };
    auto parts = std::make_shared<Parts>(Parts{std::forward<Handler>(handler), std::move(task)});
    const auto start = [rank, parts] {
      std::make_shared<State>(rank->asio_executor(), std::move(parts->task),
                              std::move(parts->handler), rank)
          ->start();
    };
    if (Executor::current() == rank) return start();
    rank->run_soon(start);
  }
};

// Completes with (exception_ptr) for a Task<void>, else (exception_ptr, T), where T is
// default-constructed if there is an exception. The task starts on `target`, never inside this
// call.
template <class T, class Token>
auto co_spawn(const boost::asio::any_io_executor& target, Task<T> task, Token&& token) {
  static_assert(std::is_void_v<T> || std::is_default_constructible_v<T>,
                "co_spawn: the task's result must be default-constructible, as for asio::co_spawn");
  return boost::asio::async_initiate<Token, typename SpawnSignature<T>::type>(
      StartSpawned(), token, target, std::move(task));
}

template <class T, class Context, class Token>
requires std::is_convertible_v<Context&, boost::asio::execution_context&>
auto co_spawn(Context& context, Task<T> task, Token&& token) {
  return co_spawn(boost::asio::any_io_executor(context.get_executor()), std::move(task),
                  std::forward<Token>(token));
}

// Runs beside the program on `rank`, in its state (its world, its default mesh), on either kind of
// executor; callable on any thread. How it interleaves with the program depends on timing: its
// collectives are ordered only among themselves, not relative to the program's. If the program ends
// first, it is destroyed with `rank` and does not complete.
template <class T, class Token>
auto co_spawn(Executor& rank, Task<T> task, Token&& token) {
  return boost::asio::async_initiate<Token, typename SpawnSignature<T>::type>(
      StartSpawned(), token, &rank, std::move(task));
}

}  // namespace coshard
#pragma GCC visibility pop
