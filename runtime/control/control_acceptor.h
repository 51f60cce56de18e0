#pragma once
// How the connections of a control channel begin: both ends prove that they know the job's secret
// (proof.h), which is never sent, and connections that do not are dropped. The accepting end sends
// Hello with a nonce; the other answers with Hello, its own nonce and its proof, and receives Hello
// with the proof of the accepting end, or Refused.
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/control/control_link.h"

namespace coshard {

// Of a limit, for errors: "1.5 s", "0.2 s".
std::string seconds_text(std::chrono::milliseconds time);

// Where a channel's accepting end listens.
struct ControlAddress {
  std::vector<std::string> hosts;  // to be tried in this order
  std::uint16_t port = 0;
  std::string secret;  // of the job
};

// Used on the thread of `io` once it is open.
class ControlAcceptor {
 public:
  using LinkPtr = std::shared_ptr<ControlLink>;
  // `name`: who listens, for errors. `entered` receives connections whose peer has proved to be the
  // process that it names; false: closed, for example because that process is already connected.
  // Peers that have not proved it within `patience` are dropped; as are the oldest when many wait.
  ControlAcceptor(boost::asio::io_context& io, std::string name,
                  std::function<bool(const LinkPtr&)> entered,
                  std::chrono::milliseconds patience = std::chrono::seconds(5));
  // Listens at `address` (port 0: any), on loopback only unless `beyond`; retries until `deadline`
  // while the port is taken. Returns the actual address. Error{CommFailed} names the port.
  ControlAddress open(ControlAddress address, bool beyond, std::chrono::milliseconds deadline);
  void close();

 private:
  struct Pending {
    LinkPtr link;
    boost::asio::steady_timer patience;
  };
  bool bind(std::uint16_t port, bool beyond);
  void accept();
  void authenticate(const LinkPtr& from, const ControlMessage& hello);
  void drop(const LinkPtr& pending);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::string name_;
  std::function<bool(const LinkPtr&)> entered_;
  std::chrono::milliseconds patience_;
  std::string secret_;
  std::list<Pending> pending_;  // not authenticated yet, oldest first
};

struct Connecting {
  std::string problem;         // begins the error: "process 1 cannot connect to process 0"
  bool may_be_earlier = true;  // than the accepting end: retries where nobody listens
  std::string secret = "COSHARD_TOKEN";  // the variable that holds it
};
// Connects `process`: tries the hosts in turn until `deadline`, running `io`. Blocks.
// Error{CommFailed}: no accepting end of this job answers; reports the result for each host.
std::shared_ptr<ControlLink> connect_control(boost::asio::io_context& io, int process,
                                             const ControlAddress& address,
                                             std::chrono::milliseconds deadline,
                                             const Connecting& how);

}  // namespace coshard
