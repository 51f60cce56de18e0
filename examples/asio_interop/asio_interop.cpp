// coshard tasks and Boost.Asio in one program, both ways: an Asio timer awaited inside a Task, and
// Tasks spawned into an io_context that belongs to the program, with a future and with a callback.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <string>

#include "runtime/coro/asio.h"
#include "runtime/coro/co_spawn.h"
#include "runtime/coro/deadline.h"
#include "runtime/coro/when_all.h"

namespace asio = boost::asio;
namespace cs = coshard;
using namespace std::chrono_literals;

// Any Asio operation is awaitable with the token use_task.
cs::Task<void> wait_for(asio::steady_timer& timer, std::string name) {
  co_await timer.async_wait(cs::use_task);
  std::printf("timer '%s' fired\n", name.c_str());
}

cs::Task<void> two_timers() {
  asio::io_context& context = cs::Executor::current()->io_context();
  asio::steady_timer slow(context, 20ms);
  asio::steady_timer fast(context, 10ms);
  cs::Task<void> first = wait_for(slow, "slow");
  cs::Task<void> second = wait_for(fast, "fast");
  co_await cs::when_all(std::move(first), std::move(second));
}

// yield and sleep_for work on the user's context, too.
cs::Task<int> square(int value) {
  co_await cs::yield();
  co_await cs::sleep_for(5ms);
  co_return value* value;
}

int main() {
  cs::sync_wait(two_timers());

  asio::io_context context;  // the program's own
  std::future<int> future = cs::co_spawn(context, square(6), asio::use_future);
  cs::co_spawn(context, square(7), [](std::exception_ptr error, int value) {
    if (!error) std::printf("callback: 7 * 7 = %d\n", value);
  });
  context.run();
  std::printf("future: 6 * 6 = %d\n", future.get());
}
