#pragma once
// StopSignals: SIGINT and SIGTERM request a stop. Owned by main; one per process. In a header, so
// that the library does not have what programs use.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <coshard/runtime/error.h>

namespace coshard {

// The first of the signals requests a stop, which stderr tells after "PROGRAM: "; a second one ends
// the process at once. A signal that is ignored when this begins stays ignored.
class StopSignals {
 public:
  explicit StopSignals(std::string program) : program_(std::move(program)) {
    for (const int signal : {SIGINT, SIGTERM}) {
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN)
        signals_.add(signal);
    }
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (!error) stop(signal);
    });
    thread_ = std::thread([this] { context_.run(); });
  }
  ~StopSignals() {
    context_.stop();
    thread_.join();
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  std::stop_token token() const { return stop_.get_token(); }  // for WorldOptions::stop

 private:
  void stop(int signal) {
    signals_.clear();  // restores the default action
    stop_.request_stop();
    std::cerr << str_cat(::isatty(STDERR_FILENO) == 1 ? "\n" : "", program_, ": ",
                         signal == SIGINT ? "SIGINT" : "SIGTERM",
                         ": finishing with what there is; a second signal ends at once\n");
  }

  std::string program_;
  std::stop_source stop_;
  boost::asio::io_context context_{1};
  boost::asio::signal_set signals_{context_};
  std::thread thread_;
};

}  // namespace coshard
