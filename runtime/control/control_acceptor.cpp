#include "runtime/control/control_acceptor.h"

#include <fcntl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>

#include <coshard/runtime/error.h>
#include "runtime/control/proof.h"
#include "runtime/host.h"

namespace coshard {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = ControlLink::Clock;
using LinkPtr = ControlAcceptor::LinkPtr;

constexpr std::size_t kMostPending = 64;  // connections that are not authenticated
constexpr std::size_t kNonce = 32;

}  // namespace

std::string seconds_text(milliseconds time) {
  return str_cat(static_cast<double>(time.count()) / 1000, " s");
}

ControlAcceptor::ControlAcceptor(asio::io_context& io, std::string name,
                                 std::function<bool(const LinkPtr&)> entered, milliseconds patience)
    : acceptor_(io),
      retry_(io),
      name_(std::move(name)),
      entered_(std::move(entered)),
      patience_(patience) {}

bool ControlAcceptor::bind(std::uint16_t port, bool beyond) {
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
         str_cat(name_, " cannot listen on ", six ? "" : any.to_string(), six ? "port " : ":", port,
                 ": ", problem.message(), listen_remedy(problem.value())));
  return !problem;
}

ControlAddress ControlAcceptor::open(ControlAddress address, bool beyond, milliseconds deadline) {
  const Clock::time_point begin = Clock::now();
  while (!bind(address.port, beyond)) {
    if (Clock::now() - begin > deadline)
      fail(ErrorKind::CommFailed,
           str_cat(name_, " cannot listen on port ", address.port,
                   ": the port has been in use for ", seconds_text(deadline)));
    std::this_thread::sleep_for(milliseconds(100));
  }
  address.port = acceptor_.local_endpoint().port();
  if (address.hosts.empty())
    address.hosts = beyond ? addresses_of_this_host() : std::vector<std::string>();
  if (address.hosts.empty()) address.hosts = {"127.0.0.1"};
  secret_ = address.secret;
  accept();
  return address;
}

void ControlAcceptor::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;  // closed since this connection was accepted
    if (error) {                       // out of descriptors, for example
      retry_.expires_after(milliseconds(100));
      return retry_.async_wait([this](const boost::system::error_code& over) {
        if (!over) accept();
      });
    }
    const auto link = std::make_shared<ControlLink>(std::move(socket));
    pending_.push_back({link, asio::steady_timer(acceptor_.get_executor(), patience_)});
    pending_.back().patience.async_wait([this, link](const boost::system::error_code& over) {
      if (!over) drop(link);
    });
    if (pending_.size() > kMostPending) drop(LinkPtr(pending_.front().link));
    link->listen(
        [this](const LinkPtr& from, const ControlMessage& hello) { authenticate(from, hello); },
        [this](const LinkPtr& from, const std::string&) { drop(from); });
    link->start();
    link->nonce = random_nonce();
    link->send({MessageKind::Hello, 0, link->nonce});
    accept();
  });
}

void ControlAcceptor::drop(const LinkPtr& pending) {
  pending->close();
  std::erase_if(pending_, [&](const Pending& each) { return each.link == pending; });
}

void ControlAcceptor::authenticate(const LinkPtr& from, const ControlMessage& hello) {
  std::erase_if(pending_, [&](const Pending& each) { return each.link == from; });
  if (hello.kind != MessageKind::Hello || hello.text.size() < kNonce) return from->close();
  const std::string nonce = hello.text.substr(0, kNonce);
  const bool knows =
      equal_proofs(std::string_view(hello.text).substr(kNonce),
                   proof_of(ProofOf::Connecting, secret_, hello.process, nonce, from->nonce));
  if (!knows) {
    from->send({MessageKind::Refused, 0, ""});
    return from->close_when_sent();
  }
  from->process = hello.process;
  from->send({MessageKind::Hello, 0,
              proof_of(ProofOf::Accepting, secret_, hello.process, nonce, from->nonce)});
  if (!entered_(from)) from->close();
}

void ControlAcceptor::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  for (const Pending& each : pending_) each.link->close();
  pending_.clear();
}

namespace {

// Why a process cannot connect; empty: it can. `final`: retrying is pointless.
struct Problem {
  std::string text;
  bool final = false;
};

Problem greet(asio::io_context& io, const LinkPtr& link, int process, const std::string& secret,
              milliseconds time, const Connecting& how) {
  Problem problem{"no answer"};
  std::string expected;
  const auto over = [&](Problem found) {
    problem = std::move(found);
    io.stop();
  };
  link->listen(
      [&](const LinkPtr& from, const ControlMessage& message) {
        if (message.kind == MessageKind::Refused)
          return over(
              {str_cat("rejected: the processes have different secrets (", how.secret, ")"), true});
        if (message.kind != MessageKind::Hello)
          return over({"the process that answered is not part of this job", true});
        if (expected.empty()) {
          const std::string own = random_nonce();
          expected = proof_of(ProofOf::Accepting, secret, process, own, message.text);
          return from->send(
              {MessageKind::Hello, process,
               own + proof_of(ProofOf::Connecting, secret, process, own, message.text)});
        }
        if (!equal_proofs(message.text, expected))
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
  const bool silent = first == asio::error::timed_out;
  return {silent ? "no answer" : first.message(), !silent};
}

Problem try_host(asio::io_context& io, const std::string& host, int process,
                 const ControlAddress& address, milliseconds time, const Connecting& how,
                 LinkPtr& made) {
  boost::system::error_code unknown;
  tcp::resolver resolver(io);
  Problem problem;
  const auto found = resolver.resolve(host, std::to_string(address.port), unknown);
  if (unknown) return {unknown.message()};
  for (const auto& entry : found) {
    tcp::socket socket(io);
    problem = connect_socket(io, socket, entry.endpoint(), time);
    problem.final = problem.final && !how.may_be_earlier;
    if (!problem.text.empty()) continue;
    made = std::make_shared<ControlLink>(std::move(socket));
    problem = greet(io, made, process, address.secret, time, how);
    if (problem.text.empty() || problem.final) return problem;
  }
  return problem;
}

}  // namespace

std::shared_ptr<ControlLink> connect_control(asio::io_context& io, int process,
                                             const ControlAddress& address, milliseconds deadline,
                                             const Connecting& how) {
  const Clock::time_point end = Clock::now() + deadline;
  for (;;) {
    std::string problems;
    bool final = true;
    auto hosts_left = std::ssize(address.hosts);
    for (const std::string& host : address.hosts) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()) / hosts_left--;
      LinkPtr made;
      const Problem problem =
          try_host(io, host, process, address,
                   std::clamp(left, milliseconds(100), milliseconds(5000)), how, made);
      if (problem.text.empty()) return made;
      problems +=
          str_cat(problems.empty() ? "" : "; ", host, ':', address.port, ": ", problem.text);
      final = final && problem.final;
    }
    if (final || Clock::now() >= end)
      fail(ErrorKind::CommFailed, str_cat(how.problem, ": ", problems));
    std::this_thread::sleep_for(milliseconds(100));
  }
}

}  // namespace coshard
