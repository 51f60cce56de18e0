#include "runtime/launch/liveness_door.h"

#include <fcntl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>

#include <coshard/runtime/error.h>
#include "runtime/launch/host.h"
#include "runtime/launch/proof.h"

namespace coshard {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = LivenessLink::Clock;
using LinkPtr = LivenessDoor::LinkPtr;

constexpr std::size_t kMostStrangers = 64;  // connections that have not yet said who they are
constexpr std::size_t kNonce = 32;

}  // namespace

bool LivenessDoor::bind(std::uint16_t port, bool beyond) {
  boost::system::error_code problem, closed;
  acceptor_.close(closed);
  acceptor_.open(beyond ? tcp::v6() : tcp::v4(), problem);
  const bool six = beyond && !problem;
  if (problem) acceptor_.open(tcp::v4(), problem);
  if (!problem) ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor_.set_option(asio::socket_base::reuse_address(true), closed);
  if (six) acceptor_.set_option(asio::ip::v6_only(false), closed);
  const asio::ip::address any =
      beyond ? asio::ip::address_v4::any() : asio::ip::address_v4::loopback();
  if (!problem)
    acceptor_.bind(six ? tcp::endpoint(tcp::v6(), port) : tcp::endpoint(any, port), problem);
  if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
  if (problem && problem != asio::error::address_in_use)
    fail(ErrorKind::CommFailed,
         str_cat("process 0 cannot listen on ", six ? "" : any.to_string(), six ? "port " : ":",
                 port, ": ", problem.message(), listen_remedy(problem.value())));
  return !problem;
}

Liveness::Address LivenessDoor::open(Liveness::Address address, bool beyond,
                                     milliseconds deadline) {
  const Clock::time_point begin = Clock::now();
  while (!bind(address.port, beyond)) {
    if (Clock::now() - begin > deadline)
      fail(ErrorKind::CommFailed,
           str_cat("process 0 cannot listen on port ", address.port,
                   ": the port has been in use for ", seconds_text(deadline)));
    std::this_thread::sleep_for(milliseconds(100));
  }
  address.port = acceptor_.local_endpoint().port();
  if (address.hosts.empty())
    address.hosts = beyond ? addresses_of_this_host() : std::vector<std::string>{"127.0.0.1"};
  secret_ = address.secret;
  accept();
  return address;
}

void LivenessDoor::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;  // closed since this connection was accepted
    if (error) {                       // for example, out of descriptors
      retry_.expires_after(milliseconds(100));
      return retry_.async_wait([this](const boost::system::error_code& over) {
        if (!over) accept();
      });
    }
    const auto link = std::make_shared<LivenessLink>(std::move(socket));
    strangers_.push_back(link);
    if (strangers_.size() > kMostStrangers) {
      strangers_.front()->close();
      strangers_.pop_front();
    }
    link->listen([this](const LinkPtr& from, const Frame& frame) { welcome(from, frame); },
                 [this](const LinkPtr& from, const std::string&) { std::erase(strangers_, from); });
    link->start();
    link->drawn = draw_nonce();
    link->send({FrameKind::Hello, 0, link->drawn});
    accept();
  });
}

// A stranger has sent its Hello.
void LivenessDoor::welcome(const LinkPtr& from, const Frame& frame) {
  std::erase(strangers_, from);
  if (frame.kind != FrameKind::Hello || frame.text.size() < kNonce) return from->close();
  const std::string drawn = frame.text.substr(0, kNonce);
  const bool knows =
      equal_proofs(std::string_view(frame.text).substr(kNonce),
                   proof_of(ProofOf::Process, secret_, frame.process, drawn, from->drawn));
  if (!knows) {
    from->send({FrameKind::Refused, 0, ""});
    return from->close_when_sent();
  }
  from->process = frame.process;
  from->send(
      {FrameKind::Hello, 0, proof_of(ProofOf::Zero, secret_, frame.process, drawn, from->drawn)});
  if (!entered_(from)) from->close();
}

void LivenessDoor::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  for (const LinkPtr& link : strangers_) link->close();
  strangers_.clear();
}

namespace {

// Why a process cannot connect; empty: it can. `final`: retrying is pointless.
struct Problem {
  std::string text;
  bool final = false;
};

Problem greet(asio::io_context& io, const LinkPtr& link, int process, const std::string& secret,
              milliseconds time) {
  Problem problem{"no answer"};
  std::string expected;
  const auto over = [&](Problem found) {
    problem = std::move(found);
    io.stop();
  };
  link->listen(
      [&](const LinkPtr& from, const Frame& frame) {
        if (frame.kind == FrameKind::Refused)
          return over({"rejected: the processes have different secrets (COSHARD_TOKEN)", true});
        if (frame.kind != FrameKind::Hello)
          return over({"the process that answered is not part of this job", true});
        if (expected.empty()) {
          const std::string drawn = draw_nonce();
          expected = proof_of(ProofOf::Zero, secret, process, drawn, frame.text);
          return from->send(
              {FrameKind::Hello, process,
               drawn + proof_of(ProofOf::Process, secret, process, drawn, frame.text)});
        }
        if (!equal_proofs(frame.text, expected))
          return over({"the process that answered is not part of this job", true});
        from->process = 0;
        over({});
      },
      [&](const LinkPtr&, const std::string& why) { over({why}); });
  link->start();
  io.restart();
  io.run_for(time);
  io.restart();
  link->listen(nullptr, nullptr);
  if (!problem.text.empty()) {
    link->close();
    io.poll();
    io.restart();
  }
  return problem;
}

Problem connect_socket(asio::io_context& io, tcp::socket& socket, const tcp::endpoint& to,
                       milliseconds time) {
  boost::system::error_code problem = asio::error::timed_out;
  socket.async_connect(to, [&](const boost::system::error_code& error) {
    problem = error;
    io.stop();
  });
  io.restart();
  io.run_for(time);
  if (!problem) return {};
  const boost::system::error_code first = problem;
  socket.close();
  io.restart();
  io.poll();  // the handler refers to locals
  return {first == asio::error::timed_out ? "no answer" : first.message()};
}

Problem try_host(asio::io_context& io, const std::string& host, int process,
                 const Liveness::Address& address, milliseconds time, LinkPtr& made) {
  boost::system::error_code unknown;
  tcp::resolver resolver(io);
  Problem problem;
  const auto found = resolver.resolve(host, std::to_string(address.port), unknown);
  if (unknown) return {unknown.message()};
  for (const auto& entry : found) {
    tcp::socket socket(io);
    problem = connect_socket(io, socket, entry.endpoint(), time);
    if (!problem.text.empty()) continue;
    made = std::make_shared<LivenessLink>(std::move(socket));
    problem = greet(io, made, process, address.secret, time);
    if (problem.text.empty() || problem.final) return problem;
  }
  return problem;
}

}  // namespace

std::shared_ptr<LivenessLink> connect_to_zero(asio::io_context& io, int process,
                                              const Liveness::Address& address,
                                              milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  for (;;) {
    std::string problems;
    bool final = true;
    for (const std::string& host : address.hosts) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      LinkPtr made;
      const Problem problem =
          try_host(io, host, process, address,
                   std::clamp(left, milliseconds(100), milliseconds(5000)), made);
      if (problem.text.empty()) return made;
      problems +=
          str_cat(problems.empty() ? "" : "; ", host, ':', address.port, ": ", problem.text);
      final = final && problem.final;
    }
    if (final || Clock::now() >= end)
      fail(ErrorKind::CommFailed,
           str_cat("process ", process, " cannot connect to process 0: ", problems));
    std::this_thread::sleep_for(milliseconds(100));
  }
}

}  // namespace coshard
