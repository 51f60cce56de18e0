// A stop that comes when an Asio operation is over touches neither the operation nor its owner.
#include <gtest/gtest.h>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;

// An operation that is over in the next handler; the stop is requested in the handler before it or
// after it. Counts the cancellations that reach it, all of them too late.
struct OneHandler {
  asio::io_context& context;
  std::stop_source stop;
  bool stop_first;
  int& cancellations;
  bool& over;

  template <class Handler>
  void operator()(Handler handler) {
    asio::get_associated_cancellation_slot(handler).assign(
        [&count = cancellations, &done = over](asio::cancellation_type) { count += done; });
    auto request = [source = stop]() mutable { source.request_stop(); };
    if (stop_first) asio::post(context, request);
    asio::post(context, [done = &over, handler = std::move(handler)]() mutable {
      *done = true;
      std::move(handler)();
    });
    if (!stop_first) asio::post(context, request);
  }
};

Task<void> await_one_handler(bool stop_first, int& cancellations, bool& over) {
  std::stop_source stop;
  const UseTask token = use_task(stop.get_token());
  OneHandler start{Executor::current()->io_context(), stop, stop_first, cancellations, over};
  Task<void> operation = asio::async_initiate<const UseTask, void()>(std::move(start), token);
  co_await std::move(operation);
}
Task<void> yields_then_sleeps(int turns) {
  for (int i = 0; i < turns; ++i) co_await yield();
  Task<void> nap = sleep_for(2ms);  // so that handlers that are still queued run
  co_await std::move(nap);
}

TEST(LateCancel, AStopAfterTheOperationDoesNotReachIt) {
  for (bool stop_first : {false, true}) {
    for (int turns : {0, 1, 400}) {
      int cancellations = 0;
      bool over = false;
      sync_wait(
          when_all(await_one_handler(stop_first, cancellations, over), yields_then_sleeps(turns)));
      EXPECT_TRUE(over);
      EXPECT_EQ(cancellations, 0) << stop_first << ' ' << turns;
    }
  }
}

// The timer is gone with this frame.
Task<void> wait_until(asio::steady_timer::time_point when, std::stop_token stop) {
  asio::steady_timer timer(Executor::current()->io_context(), when);
  Task<void> wait = timer.async_wait(use_task(stop));
  try {
    co_await std::move(wait);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Cancelled);
  }
}
// Whoever resumes first requests the stop of the other, whose timer has expired too.
Task<void> wait_then_stop(asio::steady_timer::time_point when, std::stop_token mine,
                          std::stop_source other) {
  Task<void> wait = wait_until(when, mine);
  co_await std::move(wait);
  other.request_stop();
}

TEST(LateCancel, TwoTimersThatExpireTogetherAndStopEachOther) {
  // Under AddressSanitizer: a cancellation must not touch a timer that is gone.
  for (int round = 0; round < 100; ++round) {
    std::stop_source one, other;
    const auto when = std::chrono::steady_clock::now() + 100us;
    sync_wait(when_all(wait_then_stop(when, one.get_token(), other),
                       wait_then_stop(when, other.get_token(), one),
                       yields_then_sleeps(round % 2 == 0 ? 4000 : 0)));
  }
}

}  // namespace
}  // namespace coshard::testing
