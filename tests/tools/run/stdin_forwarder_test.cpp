#include "tools/run/stdin_forwarder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <future>
#include <utility>

namespace coshard::job {
namespace {

using namespace std::chrono_literals;

class Input : public ::testing::Test {
 protected:
  Input() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Input() override {
    for (const int end : ends_) ::close(end);
  }
  void write(const std::string& text) {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  StdinForwarder::Read keep() {
    return [this](std::string text, int error) {
      const std::lock_guard lock(mutex_);
      read_.emplace_back(std::move(text), error);
      changed_.notify_one();
    };
  }
  std::pair<std::string, int> got() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 30s, [this] { return !read_.empty(); }));
    if (read_.empty()) return {};
    auto first = std::move(read_.front());
    read_.pop_front();
    return first;
  }
  bool nothing_comes() {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, 50ms, [this] { return !read_.empty(); });
  }

  std::array<int, 2> ends_{-1, -1};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, int>> read_;
};

TEST_F(Input, IsReadOnlyWhenAskedFor) {
  StdinForwarder forwarder(ends_[0], 4, keep());
  write("onetwo");
  EXPECT_TRUE(nothing_comes());
  forwarder.next();
  EXPECT_EQ(got(), std::pair(std::string("onet"), 0));
  EXPECT_TRUE(nothing_comes());
  forwarder.next();
  forwarder.next();
  EXPECT_EQ(got(), std::pair(std::string("wo"), 0));
  EXPECT_TRUE(nothing_comes());
  write("end");
  EXPECT_EQ(got(), std::pair(std::string("end"), 0));
}

TEST_F(Input, EndsWithAnEmptyPiece) {
  StdinForwarder forwarder(ends_[0], 4, keep());
  ::close(std::exchange(ends_[1], -1));
  forwarder.next();
  EXPECT_EQ(got(), std::pair(std::string(), 0));
}

TEST_F(Input, ThatCannotBeReadSaysWhy) {
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY);
  StdinForwarder forwarder(folder, 4, keep());
  forwarder.next();
  EXPECT_EQ(got(), std::pair(std::string(), EISDIR));
  ::close(folder);
}

TEST_F(Input, MayBeNonBlocking) {
  ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  StdinForwarder forwarder(ends_[0], 4, keep());
  forwarder.next();
  EXPECT_TRUE(nothing_comes());
  write("one");
  EXPECT_EQ(got(), std::pair(std::string("one"), 0));
}

TEST_F(Input, IsNotWaitedForAtTheEnd) {
  {
    StdinForwarder forwarder(ends_[0], 4, keep());
    forwarder.next();
  }
  write("one");
  EXPECT_TRUE(nothing_comes());
  char byte = 0;
  EXPECT_EQ(::read(ends_[0], &byte, 1), 1);  // it is still there
}

}  // namespace
}  // namespace coshard::job
