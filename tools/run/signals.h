#pragma once
// Signals that the processes of `coshard run` handle.
#include <boost/asio/signal_set.hpp>
#include <csignal>

namespace coshard::job {

// Adds `signal`, with SA_RESTART: an interrupted write to a slow reader would lose the rest.
inline void hear(boost::asio::signal_set& signals, int signal) {
  signals.add(signal);
  struct sigaction heard {};
  ::sigaction(signal, nullptr, &heard);
  heard.sa_flags |= SA_RESTART;
  ::sigaction(signal, &heard, nullptr);
}

}  // namespace coshard::job
