#pragma once
// SIGINT and SIGTERM as a request to stop. The first of them requests it, says so on stderr and
// gives both their default action back, so that a second one ends the process at once. One that is
// ignored when this is made (nohup) stays ignored. Owned by main, one at a time; has a thread of
// its own, which waits for the signals.
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <stop_token>
#include <thread>

namespace coshard::train {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  std::stop_token token() const { return stop_.get_token(); }

 private:
  void received(int signal);

  boost::asio::io_context context_{1};
  boost::asio::signal_set signals_{context_};
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace coshard::train
