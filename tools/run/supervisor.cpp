#include "tools/run/supervisor.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>

#include <coshard/runtime/error.h>
#include "tools/run/child.h"
#include "tools/run/signals.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;

asio::ip::tcp::endpoint place(bool local) {
  if (local) return {asio::ip::address_v4::loopback(), 0};
  return {asio::ip::tcp::v4(), 0};
}

}  // namespace

Supervisor::Supervisor(asio::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      acceptor_(io, place(options_.local)),
      signals_(io),
      pause_(io),
      start_(io),
      launcher_out_(io),
      launcher_err_(io) {
  for (int r = 0; r < options_.ranks; ++r) {
    const std::string prefix = options_.prefix ? str_cat('[', r, "] ") : "";
    ranks_.push_back(
        std::make_unique<Rank>(Rank{Lines(prefix, std::cout), Lines(prefix, std::cerr)}));
  }
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) hear(signals_, signal);
  ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
}

void Supervisor::start_launcher(const std::vector<std::string>& command,
                                const Environment& environment) {
  const Child child = start(command, Apart::Session, environment);
  if (child.error != 0)
    fail(ErrorKind::Unsupported,
         str_cat(command.front(), ' ', Ending{Ending::Kind::NotStarted, child.error}.text()));
  launcher_ = child.pid;
  launcher_name_ = std::filesystem::path(command.front()).filename().string();
  launcher_out_.assign(child.out);
  launcher_err_.assign(child.err);
  const std::string prefix = options_.prefix ? '[' + launcher_name_ + "] " : "";
  launcher_says_ = std::make_unique<Lines>(prefix, std::cerr);
  launcher_complains_ = std::make_unique<Lines>(prefix, std::cerr);
  asio::co_spawn(io_, accept_guards(), asio::detached);
  if (options_.start_timeout.count() > 0) asio::co_spawn(io_, expect_guards(), asio::detached);
  asio::co_spawn(io_, hear_signals(), asio::detached);
  asio::co_spawn(io_, show(launcher_out_, *launcher_says_), asio::detached);
  asio::co_spawn(io_, show(launcher_err_, *launcher_complains_), asio::detached);
}

// The guards -----------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::accept_guards() {
  for (;;) {
    boost::system::error_code failed;
    auto token = asio::redirect_error(asio::use_awaitable, failed);
    Socket socket = co_await acceptor_.async_accept(std::move(token));
    if (!acceptor_.is_open()) co_return;
    if (!failed) {
      asio::co_spawn(io_, follow(std::move(socket)), asio::detached);
      continue;
    }
    asio::steady_timer again(io_, std::chrono::milliseconds(100));  // no descriptor left, say
    co_await again.async_wait(asio::use_awaitable);
  }
}

Supervisor::Await<void> Supervisor::expect_guards() {
  start_.expires_after(options_.start_timeout);
  co_await start_.async_wait(asio::use_awaitable);
  const auto late = std::ranges::find_if_not(ranks_, [](const auto& rank) { return rank->came(); });
  if (late == ranks_.end()) co_return;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.start_timeout);
  failed({static_cast<int>(late - ranks_.begin()),
          {Ending::Kind::Missing, static_cast<int>(seconds.count())}});
}

// Who does not know the token is not answered.
Supervisor::Await<int> Supervisor::rank_behind(Socket& socket) {
  MessageHeader header;
  co_await asio::async_read(socket, asio::buffer(header), asio::use_awaitable);
  const MessageShape shape = shape_of(header);
  if (shape.kind != MessageKind::Hello || shape.size > options_.token.size() + 12) co_return -1;
  std::string hello(shape.size, ' ');
  co_await asio::async_read(socket, asio::buffer(hello), asio::use_awaitable);
  if (!hello.starts_with(options_.token + ' ')) co_return -1;
  const int rank = std::atoi(hello.c_str() + options_.token.size());
  if (rank < 0 || rank >= options_.ranks) co_return -1;
  const Rank& known = *ranks_[static_cast<std::size_t>(rank)];
  co_return known.came() ? -1 : rank;
}

Supervisor::Await<void> Supervisor::follow(Socket socket) {
  Rank* rank = nullptr;
  try {
    const int number = co_await rank_behind(socket);
    if (number < 0) co_return;
    rank = ranks_[static_cast<std::size_t>(number)].get();
    rank->guard = &socket;
    tell(&socket, kWelcome);
    for (;;) {
      MessageHeader header;
      co_await asio::async_read(socket, asio::buffer(header), asio::use_awaitable);
      const MessageShape shape = shape_of(header);
      std::string text(shape.size, ' ');
      co_await asio::async_read(socket, asio::buffer(text), asio::use_awaitable);
      heard(*rank, shape.kind, text);
    }
  } catch (const std::exception&) {  // the connection is at its end, or spoke nonsense
  }
  if (rank != nullptr) lost(*rank);
}

void Supervisor::heard(Rank& rank, MessageKind kind, const std::string& text) {
  if (kind == MessageKind::Out) rank.out.add(text);
  if (kind == MessageKind::Err) rank.err.add(text);
  if (kind == MessageKind::Ended) {
    rank.ended = true;
    const auto number = std::ranges::find(ranks_, &rank, &std::unique_ptr<Rank>::get);
    if (const Ending ending = ending_of(text); !ending.ok())
      failed({static_cast<int>(number - ranks_.begin()), ending});
  }
  if (kind != MessageKind::Drained) return;
  rank.out.end();
  rank.err.end();
  rank.drained = true;
  look_whether_over();
}

void Supervisor::lost(Rank& rank) {
  rank.guard = nullptr;
  if (rank.drained) return;
  if (!rank.ended) heard(rank, MessageKind::Ended, to_word({Ending::Kind::Lost, 0}));
  heard(rank, MessageKind::Drained, "");
}

}  // namespace coshard::job
