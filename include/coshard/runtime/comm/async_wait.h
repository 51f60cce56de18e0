#pragma once
// Awaiting a collective from Boost.Asio: in an asio::awaitable, with a callback, a future, or any
// other completion token. Heavy: include it in sources.
//
//   co_await async_wait(world.executor(), work, asio::use_awaitable);
//
//   Completes: with (exception_ptr) once the work is over, on the handler's executor if it has one,
//              else on the rank's.
//   Order:     as for as_it_comes: the handler runs when the data have arrived, not at a fixed
//              point of the rank's program order. If such handlers issue collectives, something
//              else must make their order the same on all ranks, for example that only one of them
//              issues any.
//   Fails:     with what co_await work throws; Error{BadInput} at once if no rank runs.
//   Cancel:    through the handler's cancellation slot: Error{Cancelled}; the collective continues.
//   Dropped:   if the rank's program ends first, the handler is destroyed without being called.
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/coro/co_spawn.h>

#pragma GCC visibility push(default)
namespace coshard {

inline Task<void> arrival_of(AsItComes work) { co_await work; }

// The executor of the rank that runs on this thread.
inline Executor& executor_to_wait_on() {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, "async_wait: no executor runs on this thread; give the rank's");
  return *executor;
}

// `rank`: the executor of the rank that issued the work (World::executor). Callable on any thread.
// `work` stays with the caller, who remains responsible for borrowed memory.
template <class Token>
auto async_wait(Executor& rank, const Work& work, Token&& token) {
  return co_spawn(rank, arrival_of(as_it_comes(work)), std::forward<Token>(token));
}
template <class Token>
auto async_wait(const Work& work, Token&& token) {
  return async_wait(executor_to_wait_on(), work, std::forward<Token>(token));
}

}  // namespace coshard
#pragma GCC visibility pop
