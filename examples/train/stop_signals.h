#pragma once
// SIGINT and SIGTERM as a request to stop. The first signal requests the stop, says so on stderr
// and restores the default action of both, so that a second one ends the process at once. A signal
// that is ignored at construction (nohup) stays ignored. Owned by main, one at a time; its own
// thread waits for the signals.
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
