#include <coshard/runtime/coro/parker.h>

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/support/nanoseconds.h"

namespace coshard {
namespace {
using namespace std::chrono_literals;
namespace asio = boost::asio;
using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;
using testing::kHour;
using testing::kMillisecond;

TEST(ThreadParker, ARingBeforeParkMakesItReturnAtOnce) {
  ThreadParker parker;
  parker.unpark();
  parker.park(0);
  EXPECT_FALSE(parker.shares_its_thread());
}

TEST(ThreadParker, ManyRingsAreOneToken) {
  ThreadParker parker;
  for (int i = 0; i < 3; ++i) parker.unpark();
  parker.park(0);
  const std::int64_t begin = parker.now();
  parker.park(begin + 5 * kMillisecond);
  EXPECT_GE(parker.now() - begin, 5 * kMillisecond);
}

TEST(ThreadParker, ADeadlineEndsTheSleepAndOneThatHasPassedDoesAtOnce) {
  ThreadParker parker;
  const std::int64_t begin = parker.now();
  parker.park(begin - 1);
  parker.park(1);
  parker.park(-5);
  parker.park(begin + 5 * kMillisecond);
  EXPECT_GE(parker.now() - begin, 5 * kMillisecond);
}

TEST(ThreadParker, ARingFromAnotherThreadEndsTheSleepAndShowsWhatWasWrittenBefore) {
  ThreadParker parker;
  int value = 0;
  std::thread other([&] {
    std::this_thread::sleep_for(5ms);
    value = 7;
    parker.unpark();
  });
  parker.park(0);
  EXPECT_EQ(value, 7);
  other.join();
}

// Two threads hand a number to and fro; a wake-up that got lost would end in a timeout.
void ping_pong(int rounds, asio::io_context* first, asio::io_context* second) {
  ThreadParker a;
  ThreadParker b;
  std::atomic<int> turn{0};
  const auto play = [&](ThreadParker& own, ThreadParker& peer, int parity, asio::io_context* io) {
    for (int i = parity; i < rounds; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) own.park(own.now() + kHour, io);
      turn.store(i + 1, std::memory_order_release);
      peer.unpark();
    }
  };
  std::thread other([&] { play(b, a, 1, second); });
  play(a, b, 0, first);
  other.join();
  EXPECT_EQ(turn.load(), rounds);
}

TEST(ThreadParker, LosesNoRingBetweenTwoThreads) { ping_pong(5000, nullptr, nullptr); }

TEST(ThreadParker, LosesNoRingBetweenSleepersInAsio) {
  asio::io_context first(1);
  asio::io_context second(1);
  const WorkGuard first_work = asio::make_work_guard(first);
  const WorkGuard second_work = asio::make_work_guard(second);
  ping_pong(5000, &first, &second);
  ping_pong(5000, &first, nullptr);
}

TEST(ThreadParker, SleepingInAsioRunsAtMostOneHandler) {
  ThreadParker parker;
  asio::io_context context(1);
  int ran = 0;
  for (int i = 0; i < 2; ++i) asio::post(context, [&ran] { ++ran; });
  parker.park(0, &context);
  EXPECT_EQ(ran, 1);
  parker.unpark();
  parker.park(0, &context);
  EXPECT_EQ(ran, 1) << "the token was there";
  parker.park(1, &context);
  EXPECT_EQ(ran, 2) << "a deadline that has passed still lets one run";
  parker.park(0, &context);  // it has no work left
}

TEST(ThreadParker, SleepingInAsioEndsWithItsTimersAndWithTheDeadline) {
  ThreadParker parker;
  asio::io_context context(1);
  asio::steady_timer timer(context, 5ms);
  bool fired = false;
  timer.async_wait([&fired](const boost::system::error_code&) { fired = true; });
  while (!fired) parker.park(0, &context);
  const WorkGuard work = asio::make_work_guard(context);
  const std::int64_t begin = parker.now();
  while (parker.now() < begin + 5 * kMillisecond) parker.park(begin + 5 * kMillisecond, &context);
  EXPECT_GE(parker.now() - begin, 5 * kMillisecond);
}

TEST(ThreadParker, WhatAHandlerThrowsLeavesParkAndTheNextSleepIsAsEver) {
  ThreadParker parker;
  asio::io_context context(1);
  asio::post(context, [&parker] {
    parker.unpark();  // while it sleeps there
    throw std::runtime_error("handler");
  });
  EXPECT_THROW(parker.park(0, &context), std::runtime_error);
  parker.unpark();
  parker.park(0);
}

// The waker may find the waiter in a context that is over a moment later.
TEST(ThreadParker, TheContextMayGoWhenParkHasReturned) {
  ThreadParker parker;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) parker.unpark();
  });
  for (int round = 0; round < 3000; ++round) {
    auto context = std::make_unique<asio::io_context>(1);
    asio::post(*context, [] {});
    parker.park(0, context.get());
  }
  over = true;
  other.join();
}

}  // namespace
}  // namespace coshard
