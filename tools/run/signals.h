#pragma once
// Signals that the processes of `coshard run` handle.
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <functional>
#include <thread>

namespace coshard::job {

// Adds `signal`, with SA_RESTART: an interrupted write to a slow reader would lose the rest. One
// that is ignored stays ignored: SIGHUP under nohup, SIGINT in the background of a script.
inline void hear(boost::asio::signal_set& signals, int signal) {
  struct sigaction heard {};
  ::sigaction(signal, nullptr, &heard);
  if (heard.sa_handler == SIG_IGN && signal != SIGCHLD) return;
  signals.add(signal);
  ::sigaction(signal, nullptr, &heard);
  heard.sa_flags |= SA_RESTART;
  ::sigaction(signal, &heard, nullptr);
}

// Starts a thread with all signals blocked: other threads handle them.
inline std::thread start_thread(const std::function<void()>& body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(body);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace coshard::job
