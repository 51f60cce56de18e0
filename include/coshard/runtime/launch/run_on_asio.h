#pragma once
// A World on the caller's own Boost.Asio context. Heavy: include it in sources.
//
//   asio::io_context io;
//   run_ranks({.ranks = 2}, train, io.get_executor(), [](std::exception_ptr error) { … });
//   io.run();
//
// All ranks run on the given executors, rank r on executor r modulo their number, each in one
// handler at a time, beside any other work there; no thread is started. Each has its own executor
// and state. The same program runs as on threads, except that
//   - nothing may wait in place for a rank on the same context, which could not run meanwhile
//     (Error{BadInput}, which names the operator and what to co_await): await what is in flight;
//   - World::executor().io_context() is refused; World::executor().asio_executor() is the rank's
//     executor, and co_spawn(world.executor(), …) and async_wait(world.executor(), …) run in its
//     state;
//   - a rank that computes occupies one thread of the context;
//   - a deadlock among ranks is found by a timeout, not at once.
//
// Completes with (exception_ptr), by default on the first executor, when all ranks have ended,
// including those in other processes, or soon after a failure, with the error of the first rank
// that failed; its peers end with that error as cause. Starts only after this call has returned.
// Error{BadInput} from the call itself: as run_ranks on threads; no executors. If a context is
// destroyed first, its ranks and their frames are destroyed with it and ranks on other contexts
// fail; the token is destroyed with the first executor's. Destroy a context only when no thread
// runs it any more. WorldOptions::on_failure and on_still_running are called on the first executor,
// one at a time. rank_threads is refused.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// The same with a plain function, which is called once, on the first executor.
void start_ranks(const WorldOptions& options, const Program& program,
                 std::vector<boost::asio::any_io_executor> executors,
                 std::function<void(std::exception_ptr)> done);

struct StartRanks {
  template <class Handler>
  void operator()(Handler&& handler, const WorldOptions& options, const Program& program,
                  std::vector<boost::asio::any_io_executor> executors) const {
    CS_REQUIRE(!executors.empty(), "run_ranks: the list of executors is empty");
    auto work = boost::asio::make_work_guard(handler, executors.front());
    struct Completion {
      std::decay_t<Handler> handler;
      decltype(work) open;
    };
    auto waiting =
        std::make_shared<Completion>(Completion{std::forward<Handler>(handler), std::move(work)});
    start_ranks(options, program, std::move(executors), [waiting](std::exception_ptr error) {
      const auto target = waiting->open.get_executor();
      boost::asio::dispatch(target, [handler = std::move(waiting->handler), error]() mutable {
        std::move(handler)(error);
      });
      waiting->open.reset();
    });
  }
};

template <class Token>
auto run_ranks(const WorldOptions& options, const Program& program,
               std::vector<boost::asio::any_io_executor> executors, Token&& token) {
  return boost::asio::async_initiate<Token, void(std::exception_ptr)>(
      StartRanks(), token, options, program, std::move(executors));
}
template <class Token>
auto run_ranks(const WorldOptions& options, const Program& program,
               const boost::asio::any_io_executor& executor, Token&& token) {
  return run_ranks(options, program, std::vector<boost::asio::any_io_executor>{executor},
                   std::forward<Token>(token));
}

}  // namespace coshard
#pragma GCC visibility pop
