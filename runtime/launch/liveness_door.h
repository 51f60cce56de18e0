#pragma once
// How the processes of a job connect with process 0 for Liveness: both ends prove that they know
// the secret of the job (proof.h), and strangers are dropped.
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/launch/liveness.h"
#include "runtime/launch/liveness_link.h"

namespace coshard {

// Of process 0; used on the thread of `io` once it is open.
class LivenessDoor {
 public:
  using LinkPtr = std::shared_ptr<LivenessLink>;
  // `entered` gets connections whose other end has proved to be the process that they name; false:
  // it is there already.
  LivenessDoor(boost::asio::io_context& io, std::function<bool(const LinkPtr&)> entered)
      : acceptor_(io), retry_(io), entered_(std::move(entered)) {}
  // Listens at `address` (a port of 0: any), on loopback alone unless `beyond`; tries again until
  // `deadline` while the port is taken. Returns where. Error{CommFailed} names the port.
  Liveness::Address open(Liveness::Address address, bool beyond,
                         std::chrono::milliseconds deadline);
  void close();

 private:
  bool bind(std::uint16_t port, bool beyond);
  void accept();
  void welcome(const LinkPtr& from, const Frame& frame);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::function<bool(const LinkPtr&)> entered_;
  std::string secret_;
  std::deque<LinkPtr> strangers_;
};

// Connects `process` with process 0: tries the hosts in turn until `deadline`, and runs `io`
// meanwhile. Error{CommFailed}: nobody of this job answers; says what each host said.
std::shared_ptr<LivenessLink> connect_to_zero(boost::asio::io_context& io, int process,
                                              const Liveness::Address& address,
                                              std::chrono::milliseconds deadline);

}  // namespace coshard
