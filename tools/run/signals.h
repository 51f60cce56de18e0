#pragma once
// Signals that a process of `coshard run` listens to.
#include <boost/asio/signal_set.hpp>
#include <csignal>

namespace coshard::job {

// Adds `signal`, and lets it interrupt no call: a write to a slow reader would lose what is left.
inline void hear(boost::asio::signal_set& signals, int signal) {
  signals.add(signal);
  struct sigaction heard {};
  ::sigaction(signal, nullptr, &heard);
  heard.sa_flags |= SA_RESTART;
  ::sigaction(signal, &heard, nullptr);
}

}  // namespace coshard::job
