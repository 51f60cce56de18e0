#include "runtime/launch/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {

StopSignals::StopSignals(std::string program) : program_(std::move(program)) {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) signals_.add(signal);
  }
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    signals_.clear();  // restores the default action
    stop_.request_stop();
    std::cerr << str_cat(::isatty(STDERR_FILENO) == 1 ? "\n" : "", program_, ": ",
                         signal == SIGINT ? "SIGINT" : "SIGTERM",
                         ": finishing with what there is; a second signal ends at once\n");
  });
  thread_ = std::thread([this] { context_.run(); });
}

StopSignals::~StopSignals() {
  context_.stop();
  thread_.join();
}

}  // namespace coshard
