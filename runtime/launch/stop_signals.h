#pragma once
// StopSignals: SIGINT and SIGTERM request a stop. Owned by main; one per process.
#include <stop_token>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace coshard {

// The first of the signals requests a stop, which stderr tells after "PROGRAM: "; a second one ends
// the process at once. A signal that is ignored when this begins stays ignored.
class StopSignals {
 public:
  explicit StopSignals(std::string program);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  std::stop_token token() const { return stop_.get_token(); }  // for WorldOptions::stop

 private:
  std::string program_;
  std::stop_source stop_;
  boost::asio::io_context context_{1};
  boost::asio::signal_set signals_{context_};
  std::thread thread_;
};

}  // namespace coshard
