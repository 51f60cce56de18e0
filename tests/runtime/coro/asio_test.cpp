#include <coshard/runtime/coro/asio.h>

#include <gtest/gtest.h>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/when_all.h>

namespace coshard {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Socket = asio::local::stream_protocol::socket;

Task<std::thread::id> wait_for_timer() {
  asio::steady_timer timer(Executor::current()->io_context(), 1ms);
  co_await timer.async_wait(use_task);
  co_return std::this_thread::get_id();
}

TEST(UseTask, ATimerIsAwaitedAndResumesOnTheExecutorsThread) {
  EXPECT_EQ(sync_wait(wait_for_timer()), std::this_thread::get_id());
}

Task<bool> does_not_start_early() {
  asio::io_context& context = Executor::current()->io_context();
  asio::steady_timer timer(context, 0ms);
  Task<void> wait = timer.async_wait(use_task);
  timer.expires_after(1ms);
  co_return timer.cancel() == 0;  // nothing was waiting yet
}

TEST(UseTask, TheOperationStartsWhenItIsAwaited) { EXPECT_TRUE(sync_wait(does_not_start_early())); }

Task<std::size_t> send(Socket& socket, std::string text) {
  co_return co_await asio::async_write(socket, asio::buffer(text), use_task);
}
Task<std::string> receive(Socket& socket, std::size_t bytes) {
  std::string text(bytes, ' ');
  const std::size_t got = co_await asio::async_read(socket, asio::buffer(text), use_task);
  text.resize(got);
  co_return text;
}
Task<std::string> through_a_socket(std::string text) {
  asio::io_context& context = Executor::current()->io_context();
  Socket here(context), there(context);
  asio::local::connect_pair(here, there);
  auto both = when_all(receive(there, text.size()), send(here, text));
  auto [received, sent] = co_await std::move(both);
  EXPECT_EQ(sent, text.size());
  co_return received;
}

TEST(UseTask, ComposedOperationsReturnTheirValues) {
  const std::string text(100'000, 'q');
  EXPECT_EQ(sync_wait(through_a_socket(text)), text);
}

Task<void> read_from_closed() {
  asio::io_context& context = Executor::current()->io_context();
  Socket here(context), there(context);
  asio::local::connect_pair(here, there);
  there.close();
  Task<std::string> text = receive(here, 10);
  co_await std::move(text);
}

TEST(UseTask, AnErrorCodeBecomesASystemError) {
  try {
    sync_wait(read_from_closed());
    FAIL() << "nothing was thrown";
  } catch (const boost::system::system_error& error) {
    EXPECT_EQ(error.code(), asio::error::eof);
  }
}

Task<void> read_stoppable(std::stop_token stop) {
  asio::io_context& context = Executor::current()->io_context();
  Socket here(context), there(context);
  asio::local::connect_pair(here, there);
  std::string text(10, ' ');
  co_await asio::async_read(here, asio::buffer(text), use_task(stop));
}

TEST(UseTask, AStopFromAnotherThreadCancelsARead) {
  std::stop_source stop;
  std::thread other([&stop] {
    std::this_thread::sleep_for(5ms);
    stop.request_stop();
  });
  try {
    sync_wait(read_stoppable(stop.get_token()));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Cancelled);
  }
  other.join();
}

// An operation of somebody else's, completed on a thread of its own.
template <class Signature, class... Values>
auto async_compute(asio::thread_pool& pool, Values... values) {
  return asio::async_initiate<const UseTask, Signature>(
      [&pool](auto handler, Values... results) {
        auto target = asio::get_associated_executor(handler);
        auto work = asio::make_work_guard(target);
        asio::post(
            pool, [handler = std::move(handler), work, ... results = std::move(results)]() mutable {
              auto executor = work.get_executor();
              asio::post(executor, [handler = std::move(handler),
                                    ... results = std::move(results)]() mutable {
                std::move(handler)(std::move(results)...);
              });
              work.reset();
            });
      },
      use_task, std::move(values)...);
}

Task<int> compute_all(asio::thread_pool& pool) {
  co_await async_compute<void()>(pool);
  const int one = co_await async_compute<void(int)>(pool, 20);
  auto [a, b] = co_await async_compute<void(int, std::string)>(pool, 20, std::string("ab"));
  const std::exception_ptr none;
  const int two = co_await async_compute<void(std::exception_ptr, int)>(pool, none, 0);
  co_return one + a + static_cast<int>(b.size()) + two;
}
Task<void> compute_failure(asio::thread_pool& pool) {
  const auto error = std::make_exception_ptr(std::runtime_error("pool"));
  co_await async_compute<void(std::exception_ptr)>(pool, error);
}

TEST(UseTask, OperationsOfOtherThreadsResumeHereWithTheirValuesAndExceptions) {
  Executor executor;  // outlives the pool, whose threads post to it
  asio::thread_pool pool(2);
  EXPECT_EQ(executor.run(compute_all(pool)), 42);
  EXPECT_THROW(executor.run(compute_failure(pool)), std::runtime_error);
  pool.join();
}

Task<void> two_waits() { co_await when_all(wait_for_timer(), wait_for_timer()); }

TEST(UseTask, OperationsGoIntoAWhenAll) { sync_wait(two_waits()); }

Task<void> wait_long() {
  asio::steady_timer timer(Executor::current()->io_context(), 1h);
  co_await timer.async_wait(use_task);
}

TEST(UseTask, ATaskGivenUpLeavesNothingBehindThatWouldResumeIt) {
  Executor executor;
  asio::post(executor.io_context(), [] { throw std::runtime_error("handler"); });
  EXPECT_THROW(executor.run(wait_long()), std::runtime_error);
  executor.run(two_waits());  // the handler of the cancelled timer comes in here
}

}  // namespace
}  // namespace coshard
