#include "tools/run/guard_door.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <sstream>
#include <thread>

#include <coshard/runtime/error.h>
#include "runtime/launch/host.h"
#include "runtime/launch/proof.h"
#include "tools/run/message.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Socket = GuardDoor::Socket;

constexpr std::size_t kMostStrangers = 64;  // unauthenticated connections
constexpr std::size_t kNonce = 32, kProof = 64, kMostOfHello = kNonce + kProof + 12;

tcp::endpoint place(bool local) {
  if (local) return {asio::ip::address_v4::loopback(), 0};
  return {tcp::v4(), 0};
}

void set(Socket& socket, int option, std::chrono::milliseconds time,
         std::chrono::milliseconds unit) {
  const auto value = static_cast<int>(time / unit);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
}

// Options of a connection that may be silent for hours. If the other host does not answer, it fails
// as soon as a liveness link without a deadline does (runtime/launch/liveness.cpp).
void settle(Socket& socket) {
  using namespace std::chrono_literals;
  error_code ignored;
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);  // not inherited by the program
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  set(socket, TCP_KEEPIDLE, 15s, 1s);
  set(socket, TCP_KEEPINTVL, 5s, 1s);
  set(socket, TCP_USER_TIMEOUT, 60s, 1ms);
}

}  // namespace

GuardDoor::GuardDoor(asio::io_context& io, Options options,
                     std::function<void(int rank, Socket)> entered)
    : io_(io), options_(std::move(options)), entered_(std::move(entered)), acceptor_(io) {
  const tcp::endpoint own = place(options_.local);
  error_code problem;
  acceptor_.open(own.protocol(), problem);
  if (!problem) acceptor_.bind(own, problem);
  if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
  if (problem)
    fail(ErrorKind::CommFailed, str_cat("run: cannot listen on ", own.address().to_string(), ": ",
                                        problem.message(), listen_remedy(problem.value())));
  ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
}

void GuardDoor::open() { asio::co_spawn(io_, accept(), asio::detached); }

void GuardDoor::close() {
  error_code ignored;
  acceptor_.close(ignored);
  for (const StrangerPtr& stranger : strangers_) stranger->drop();
}

void GuardDoor::Stranger::drop() {
  error_code ignored;
  socket.close(ignored);
}

GuardDoor::Await<void> GuardDoor::accept() {
  for (;;) {
    error_code failed;
    auto token = asio::redirect_error(asio::use_awaitable, failed);
    Socket socket = co_await acceptor_.async_accept(std::move(token));
    if (!acceptor_.is_open()) co_return;
    if (failed) {
      asio::steady_timer again(io_, milliseconds(100));  // out of descriptors, for example
      co_await again.async_wait(asio::use_awaitable);
      continue;
    }
    settle(socket);
    const auto stranger = std::make_shared<Stranger>(
        Stranger{std::move(socket), asio::steady_timer(io_, options_.patience)});
    strangers_.push_back(stranger);
    if (strangers_.size() > kMostStrangers) {
      strangers_.front()->drop();
      strangers_.pop_front();
    }
    asio::co_spawn(io_, welcome(stranger), asio::detached);
  }
}

GuardDoor::Await<void> GuardDoor::welcome(StrangerPtr stranger) {
  stranger->patience.async_wait([stranger](error_code over) {
    if (!over) stranger->drop();
  });
  int rank = -1;
  try {
    rank = co_await rank_behind(stranger->socket);
  } catch (const std::exception&) {  // it disconnected, was dropped, or sent nonsense
  }
  stranger->patience.cancel();
  std::erase(strangers_, stranger);
  if (rank < 0 || !stranger->socket.is_open()) co_return stranger->drop();
  entered_(rank, std::move(stranger->socket));
}

// -1: it is not of this job, and is not told so.
GuardDoor::Await<int> GuardDoor::rank_behind(Socket& socket) {
  const std::string drawn = draw_nonce();
  co_await asio::async_write(socket, asio::buffer(drawn), asio::use_awaitable);
  MessageHeader header;
  co_await asio::async_read(socket, asio::buffer(header), asio::use_awaitable);
  const MessageShape shape = shape_of(header);
  if (shape.kind != MessageKind::Hello || shape.size > kMostOfHello) co_return -1;
  std::string hello(shape.size, ' ');
  co_await asio::async_read(socket, asio::buffer(hello), asio::use_awaitable);
  std::istringstream in(hello);
  int rank = -1;
  std::string drawn_there, proof;
  if (!(in >> rank >> drawn_there >> proof)) co_return -1;
  const bool known =
      equal_proofs(proof, proof_of(ProofOf::Process, options_.token, rank, drawn_there, drawn));
  if (!known || rank < 0 || rank >= options_.ranks) co_return -1;
  const std::string own = proof_of(ProofOf::Zero, options_.token, rank, drawn_there, drawn);
  co_await asio::async_write(socket, asio::buffer(own), asio::use_awaitable);
  co_return rank;
}

namespace {

enum class Answer { Nobody, NotThisJob, Run };

asio::awaitable<Answer> introduce(Socket& socket, tcp::endpoint to, std::string token, int rank) {
  error_code failed;
  auto told = asio::redirect_error(asio::use_awaitable, failed);
  co_await socket.async_connect(to, told);
  if (failed) co_return Answer::Nobody;
  settle(socket);
  std::string drawn(kNonce, ' '), answer(kProof, ' ');
  co_await asio::async_read(socket, asio::buffer(drawn), told);
  if (failed) co_return Answer::NotThisJob;
  const std::string own = draw_nonce();
  const std::string hello =
      str_cat(rank, ' ', own, ' ', proof_of(ProofOf::Process, token, rank, own, drawn));
  const MessageHeader header = header_of(MessageKind::Hello, hello.size());
  const std::array<asio::const_buffer, 2> all{asio::buffer(header), asio::buffer(hello)};
  co_await asio::async_write(socket, all, told);
  if (!failed) co_await asio::async_read(socket, asio::buffer(answer), told);
  const std::string expected = proof_of(ProofOf::Zero, token, rank, own, drawn);
  co_return !failed && equal_proofs(answer, expected) ? Answer::Run : Answer::NotThisJob;
}

Answer introduce_within(asio::io_context& io, Socket& socket, const tcp::endpoint& to,
                        const std::string& token, int rank, milliseconds time) {
  Answer answer = Answer::NotThisJob;
  asio::co_spawn(io, introduce(socket, to, token, rank),
                 [&](const std::exception_ptr& failed, Answer said) {
                   if (!failed) answer = said;
                 });
  io.restart();
  io.run_for(time);
  if (!io.stopped()) {
    socket.close();
    io.run();
  }
  io.restart();
  return answer;
}

std::vector<tcp::endpoint> endpoints_of(const std::string& addresses) {
  std::vector<tcp::endpoint> all;
  std::istringstream in(addresses);
  for (std::string word; std::getline(in, word, ',');) {
    const std::size_t colon = word.rfind(':');
    const auto port = static_cast<unsigned short>(std::atoi(word.c_str() + colon + 1));
    all.emplace_back(asio::ip::make_address(word.substr(0, colon)), port);
  }
  return all;
}

}  // namespace

Socket connect_to_run(asio::io_context& io, const std::string& addresses, const std::string& token,
                      int rank, milliseconds patience) {
  constexpr milliseconds kOfOne{2000}, kBetween{100};
  const Clock::time_point end = Clock::now() + patience;
  bool somebody = true;
  while (somebody) {
    somebody = false;
    for (const tcp::endpoint& to : endpoints_of(addresses)) {
      Socket socket(io);
      const Answer answer = introduce_within(io, socket, to, token, rank, kOfOne);
      if (answer == Answer::Run) return socket;
      somebody = somebody || answer == Answer::NotThisJob;
    }
    if (Clock::now() + kBetween >= end) break;
    std::this_thread::sleep_for(kBetween);
  }
  fail(ErrorKind::CommFailed, str_cat("rank ", rank, " on ", asio::ip::host_name(),
                                      " cannot reach `coshard run` at ", addresses));
}

}  // namespace coshard::job
