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
    while (read < text.size())
      read += static_cast<std::size_t>(::read(ends[0], piece.data(), piece.size()));
  });
  EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace coshard::job
