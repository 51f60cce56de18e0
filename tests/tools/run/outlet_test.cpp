#include "tools/run/outlet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <utility>

namespace coshard::job {
namespace {

using namespace std::chrono_literals;

struct ReadPipe {
  ReadPipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~ReadPipe() {
    for (const int end : ends) ::close(end);
  }
  std::string read(std::size_t size) {
    std::string text(size, ' ');
    std::size_t got = 0;
    for (ssize_t n = 1; got < size && n > 0; got += static_cast<std::size_t>(n))
      n = ::read(ends[0], text.data() + got, size - got);
    return text;
  }
  std::array<int, 2> ends{-1, -1};
};

void wait_until(const std::function<bool()>& f) {
  while (!f()) std::this_thread::sleep_for(1ms);
}

TEST(Outlet, WritesInOrderToWhereItIsTold) {
  ReadPipe one, other;
  Outlet outlet([] {});
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string text = std::to_string(i) + std::string(static_cast<std::size_t>(i), 'x');
    outlet.write(one.ends[1], text);
    outlet.write(other.ends[1], "-");
    expected += text;
  }
  EXPECT_EQ(one.read(expected.size()), expected);
  EXPECT_EQ(other.read(300), std::string(300, '-'));
  wait_until([&] { return outlet.waiting() == 0; });
  EXPECT_EQ(outlet.error(), 0);
}

TEST(Outlet, SomeoneWhoDoesNotReadHoldsUpNobody) {
  ReadPipe pipe;
  const std::string text(1 << 20, 'x');
  std::atomic<int> told{0};
  auto outlet = std::make_unique<Outlet>([&] { ++told; });
  EXPECT_TRUE(outlet->has_room());
  outlet->write(pipe.ends[1], text);
  EXPECT_FALSE(outlet->has_room());
  wait_until([&] { return told >= 8; });  // half of what a pipe takes
  EXPECT_GT(outlet->waiting(), text.size() / 2);
  const Outlet::Clock::time_point before = outlet->moved();
  (void)pipe.read(1 << 18);
  wait_until([&] { return outlet->moved() > before; });
  outlet.reset();  // at once
}

TEST(Outlet, ThePipeMayBeNonBlocking) {
  ReadPipe pipe;
  ::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  Outlet outlet([] {});
  const std::string text(1 << 20, 'x');
  outlet.write(pipe.ends[1], text);
  std::this_thread::sleep_for(10ms);  // it is full
  EXPECT_EQ(pipe.read(text.size()), text);
}

TEST(Outlet, WhatCannotBeWrittenIsAnErrorAndIsDropped) {
  ::signal(SIGPIPE, SIG_IGN);
  ReadPipe pipe;
  ::close(std::exchange(pipe.ends[0], -1));
  Outlet outlet([] {});
  outlet.write(pipe.ends[1], std::string(1 << 20, 'x'));
  wait_until([&] { return outlet.waiting() == 0; });
  EXPECT_EQ(outlet.error(), EPIPE);
  ::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace coshard::job
