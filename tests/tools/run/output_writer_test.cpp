#include "tools/run/output_writer.h"

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

TEST(OutputWriter, WritesInOrderToWhereItIsTold) {
  ReadPipe one, other;
  OutputWriter writer([] {});
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string text = std::to_string(i) + std::string(static_cast<std::size_t>(i), 'x');
    writer.write(one.ends[1], text);
    writer.write(other.ends[1], "-");
    expected += text;
  }
  EXPECT_EQ(one.read(expected.size()), expected);
  EXPECT_EQ(other.read(300), std::string(300, '-'));
  wait_until([&] { return writer.waiting() == 0; });
  EXPECT_EQ(writer.error(), 0);
}

TEST(OutputWriter, SomeoneWhoDoesNotReadHoldsUpNobody) {
  ReadPipe pipe;
  const std::string text(1 << 20, 'x');
  std::atomic<int> told{0};
  auto writer = std::make_unique<OutputWriter>([&] { ++told; });
  EXPECT_TRUE(writer->has_room());
  writer->write(pipe.ends[1], text);
  EXPECT_FALSE(writer->has_room());
  wait_until([&] { return told >= 8; });  // half of what a pipe takes
  EXPECT_GT(writer->waiting(), text.size() / 2);
  const OutputWriter::Clock::time_point before = writer->moved();
  (void)pipe.read(1 << 18);
  wait_until([&] { return writer->moved() > before; });
  writer.reset();  // at once
}

TEST(OutputWriter, ThePipeMayBeNonBlocking) {
  ReadPipe pipe;
  ::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  OutputWriter writer([] {});
  const std::string text(1 << 20, 'x');
  writer.write(pipe.ends[1], text);
  std::this_thread::sleep_for(10ms);  // it is full
  EXPECT_EQ(pipe.read(text.size()), text);
}

TEST(OutputWriter, WhatCannotBeWrittenIsAnErrorAndIsDropped) {
  ::signal(SIGPIPE, SIG_IGN);
  ReadPipe pipe;
  ::close(std::exchange(pipe.ends[0], -1));
  OutputWriter writer([] {});
  writer.write(pipe.ends[1], std::string(1 << 20, 'x'));
  wait_until([&] { return writer.waiting() == 0; });
  EXPECT_EQ(writer.error(), EPIPE);
  ::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace coshard::job
