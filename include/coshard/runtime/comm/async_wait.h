#pragma once
// Awaiting a collective from Boost.Asio: in an asio::awaitable, with a callback, a future, or any
// other completion token. Heavy: include it in sources.
//
//   co_await async_wait(world.executor(), work, asio::use_awaitable);
//
//   Completes: with (exception_ptr) once the work is over, by default on the rank's executor;
//              through another executor where the handler has one.
//   Order:     as_it_comes. What follows runs when the data are there, at no place in the order of
//              the rank's program. If it issues collectives, their order must be the same on all
//              ranks for another reason, such as that only one such coroutine issues any.
//   Fails:     with what co_await work throws; Error{BadInput} at once where no rank runs.
//   Cancel:    by the cancellation slot of the handler: Error{Cancelled}; the collective goes on.
//   Dropped:   when the rank's program ends first the handler is destroyed, and not called.
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/coro/co_spawn.h>

namespace coshard {

inline Task<void> arrival_of(AsItComes work) { co_await work; }

// The executor of the rank that runs on this thread.
inline Executor& executor_to_wait_on() {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, "async_wait: no executor runs on this thread; give the rank's");
  return *executor;
}

// `rank`: the executor of the rank that has issued the work (World::executor); any thread may call
// this. Borrowed memory belongs to `work`, which stays with the caller.
template <class Token>
auto async_wait(Executor& rank, const Work& work, Token&& token) {
  return co_spawn(rank, arrival_of(as_it_comes(work)), std::forward<Token>(token));
}
template <class Token>
auto async_wait(const Work& work, Token&& token) {
  return async_wait(executor_to_wait_on(), work, std::forward<Token>(token));
}

}  // namespace coshard
