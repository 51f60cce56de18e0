#pragma once
// A World on the caller's own Boost.Asio context. Heavy: include it in sources.
//
//   asio::io_context io;
//   run_ranks({.ranks = 2}, train, io.get_executor(), [](std::exception_ptr error) { … });
//   io.run();
//
// All ranks live on the given executors, rank r on number r modulo their count, each in one handler
// at a time, beside whatever else runs there; no thread is started. Each has an executor and a
// state of its own. The same program runs as on threads, except that
//   - nothing may wait in place for a rank of the same context, which could not run meanwhile
//     (Error{BadInput}, which names the operator and what to co_await): await what is in flight;
//   - World::executor().io_context() is refused; World::executor().asio_executor() is the rank's
//     place, and co_spawn(world.executor(), …) and async_wait(world.executor(), …) reach its state;
//   - what a rank computes holds up one thread of the context;
//   - ranks that all wait for each other are found by their timeout, not at once.
//
// Completes with (exception_ptr), by default on the first executor, when all ranks have ended: with
// what the first one to fail threw; its peers end with it as cause. It begins after this call has
// returned. Error{BadInput} from the call itself: as for run_ranks on threads, and no executor.
// When a context is destroyed first, its ranks and their frames are destroyed with it and those on
// other contexts fail; the token goes with the first executor's. Destroy it when nobody runs it any
// more. WorldOptions::on_failure and on_still_running are called on the first executor, one at a
// time. rank_threads is refused.
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

namespace coshard {

// The same for a plain function, which is called once, on the first executor.
void start_ranks(const WorldOptions& options, const Program& program,
                 std::vector<boost::asio::any_io_executor> executors,
                 std::function<void(std::exception_ptr)> done);

struct StartRanks {
  template <class Handler>
  void operator()(Handler&& handler, const WorldOptions& options, const Program& program,
                  std::vector<boost::asio::any_io_executor> executors) const {
    CS_REQUIRE(!executors.empty(), "run_ranks: no executor");
    auto work = boost::asio::make_work_guard(handler, executors.front());
    struct Waiting {
      std::decay_t<Handler> handler;
      decltype(work) open;
    };
    auto waiting =
        std::make_shared<Waiting>(Waiting{std::forward<Handler>(handler), std::move(work)});
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
