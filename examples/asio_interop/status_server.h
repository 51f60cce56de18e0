#pragma once
// Serves the status of a training run: one line of JSON to each client that connects. Belongs to
// one rank and runs on its thread, between training steps and while training waits.
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <stop_token>
#include <string>

#include <coshard/runtime/coro/task.h>

namespace asio_interop {

struct Status {
  int ranks = 0, step = 0;  // step: how many are complete
  double loss = 0;          // of the last step
};

std::string to_json(const Status& status);  // {"step": 7, "loss": 0.5, "ranks": 2} and a newline

class StatusServer {
 public:
  // Listens on 127.0.0.1; port 0: one that is free. Error{BadInput} names a port that is taken.
  StatusServer(boost::asio::io_context& context, std::uint16_t port);
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Answers until a stop is requested through `over`, then stops listening. A client that
  // disconnects is ignored. `status` is read anew for each client.
  coshard::Task<void> serve(const Status& status, std::stop_token over);

 private:
  boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace asio_interop
