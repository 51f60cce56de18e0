#include "tools/run/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <string>
#include <thread>

namespace coshard::job {
namespace {

TEST(Hear, LetsAWriteToASlowReaderGoOnAfterASignal) {
  boost::asio::io_context io;
  boost::asio::signal_set signals(io);
  hear(signals, SIGUSR1);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(1 << 20, 'x');  // more than a pipe holds
  const pthread_t writer = ::pthread_self();
  std::size_t read = 0;
  std::thread reader([&] {
    std::string piece(1 << 16, ' ');
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ::pthread_kill(writer, SIGUSR1);
    }
    for (ssize_t size = 1; size > 0; read += static_cast<std::size_t>(size))
      size = ::read(ends[0], piece.data(), piece.size());
  });
  for (std::size_t written = 0; written < text.size();) {  // one with a part behind it may be short
    const ssize_t size = ::write(ends[1], text.data() + written, text.size() - written);
    ASSERT_GT(size, 0);
    written += static_cast<std::size_t>(size);
  }
  ::close(ends[1]);
  reader.join();
  EXPECT_EQ(read, text.size());
  ::close(ends[0]);
}

}  // namespace
}  // namespace coshard::job
