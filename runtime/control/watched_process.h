#pragma once
// A process of this host whose end Liveness watches for. Used on the thread of its io_context only.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/control/control_link.h"

namespace coshard {

struct WatchedProcess {
  WatchedProcess(boost::asio::io_context& io, int number) : fd(io), timer(io), process(number) {}
  // False: it cannot be watched (before Linux 5.3). `ended` may be called before this returns.
  template <class Ended>
  bool on_end(int pid, Ended ended) {
    const int opened = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (opened < 0 && errno != ESRCH) return false;
    if (opened < 0) return ended(), true;
    fd.assign(opened);
    fd.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                  [ended = std::move(ended)](const boost::system::error_code& error) {
                    if (!error) ended();
                  });
    return true;
  }
  void end() {
    boost::system::error_code ignored;
    fd.close(ignored);
    timer.cancel();
  }

  boost::asio::posix::stream_descriptor fd;
  boost::asio::steady_timer timer;
  int process;
  int looks = 0;  // since anything was heard from it
  ControlLink::Clock::time_point heard_at;
};

}  // namespace coshard
