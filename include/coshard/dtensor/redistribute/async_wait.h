#pragma once
// async_wait for a redistribution; completes with (exception_ptr, Tensor). Rules:
// coshard/runtime/comm/async_wait.h. The tensor is the one that co_await returns.
//
//   DTensor full =
//       co_await async_wait(world.executor(), x.redistribute(Replicate()), asio::use_awaitable);
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/comm/async_wait.h>

#pragma GCC visibility push(default)
namespace coshard {

inline Task<Tensor> result_of(Redistribution redistribution) {
  Tensor result = co_await redistribution;
  co_return result;
}

template <class Token>
auto async_wait(Executor& rank, Redistribution redistribution, Token&& token) {
  return co_spawn(rank, result_of(std::move(redistribution)), std::forward<Token>(token));
}
template <class Token>
auto async_wait(Redistribution redistribution, Token&& token) {
  return async_wait(executor_to_wait_on(), std::move(redistribution), std::forward<Token>(token));
}

}  // namespace coshard
#pragma GCC visibility pop
