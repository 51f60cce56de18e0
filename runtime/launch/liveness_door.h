#pragma once
// Connection setup between the processes of a job and process 0, for Liveness: both ends prove that
// they know the job's secret (proof.h), and unauthenticated peers are dropped.
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

// Process 0's side; used on the thread of `io` once it is open.
class LivenessDoor {
 public:
  using LinkPtr = std::shared_ptr<LivenessLink>;
  // `entered` receives connections whose peer has proved to be the process that it names; false:
  // refused, for example because that process is already connected.
  LivenessDoor(boost::asio::io_context& io, std::function<bool(const LinkPtr&)> entered)
      : acceptor_(io), retry_(io), entered_(std::move(entered)) {}
  // Listens at `address` (port 0: any), on loopback only unless `beyond`; retries until `deadline`
  // while the port is taken. Returns the actual address. Error{CommFailed} names the port.
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

// Connects `process` to process 0: tries the hosts in turn until `deadline`, running `io`.
// Error{CommFailed}: no process of this job answers; reports the result for each host.
std::shared_ptr<LivenessLink> connect_to_zero(boost::asio::io_context& io, int process,
                                              const Liveness::Address& address,
                                              std::chrono::milliseconds deadline);

}  // namespace coshard
