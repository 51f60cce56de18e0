#pragma once
// Tells how a training run goes: one line of JSON to everybody who connects, while it runs. Belongs
// to one rank and runs on its thread, between the steps of its training and while that waits.
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <stop_token>
#include <string>

#include <coshard/runtime/coro/task.h>

namespace asio_interop {

struct Status {
  int ranks = 0, step = 0;  // step: how many are done
  double loss = 0;          // of the last one
};

std::string to_json(const Status& status);  // {"step": 7, "loss": 0.5, "ranks": 2} and a newline

class StatusServer {
 public:
  // Listens on 127.0.0.1; port 0: one that is free. Error{BadInput} names a port that is taken.
  StatusServer(boost::asio::io_context& context, std::uint16_t port);
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Answers until `over` is requested, then listens no more. A client that goes away is its own
  // affair. `status` is read anew for each.
  coshard::Task<void> serve(const Status& status, std::stop_token over);

 private:
  boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace asio_interop
