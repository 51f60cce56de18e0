#pragma once
// Where the program of a rank writes its failure record (runtime/control/failure_record.h). Owned
// by its guard; used on the thread of `io`.
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

namespace coshard::job {

class FailureSocket {
 public:
  // `received` gets what processes of this user send to the socket, and their pids.
  // Error{CommFailed}: it cannot be opened.
  FailureSocket(boost::asio::io_context& io,
                std::function<void(std::string bytes, int pid)> received);
  const std::string& name() const { return name_; }  // without the zero byte that it begins with
  // Takes what has been sent by now; of a flood, a part.
  void drain();

 private:
  void wait();

  std::string name_;
  std::function<void(std::string, int)> received_;
  boost::asio::posix::stream_descriptor socket_;
  std::array<char, 8192> buffer_{};
};

}  // namespace coshard::job
