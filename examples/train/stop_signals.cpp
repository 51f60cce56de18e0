#include "examples/train/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <iostream>
#include <sstream>

namespace coshard::train {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

StopSignals::StopSignals() {
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) signals_.add(signal);
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (!error) received(signal);
  });
  thread_ = std::thread([this] { context_.run(); });
}

StopSignals::~StopSignals() {
  context_.stop();
  thread_.join();
}

void StopSignals::received(int signal) {
  signals_.clear();  // restores the default action
  stop_.request_stop();
  std::ostringstream line;  // in one write, since the ranks may print too
  if (::isatty(STDERR_FILENO) == 1) line << '\n';
  line << "train: " << (signal == SIGINT ? "SIGINT" : "SIGTERM")
       << ": finishing with what there is; a second signal ends at once\n";
  std::cerr << line.str() << std::flush;
}

}  // namespace coshard::train
