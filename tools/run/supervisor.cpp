#include "tools/run/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <filesystem>

#include <coshard/runtime/error.h>
#include "runtime/launch/launcher.h"
#include "tools/run/child.h"
#include "tools/run/signals.h"

namespace coshard::job {

namespace asio = boost::asio;

Supervisor::Supervisor(asio::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      door_(io, {options_.token, options_.ranks, options_.hosts.empty()},
            [this](int rank, Socket socket) { entered(rank, std::move(socket)); }),
      signals_(io),
      pause_(io),
      start_(io),
      flush_(io),
      launcher_out_(io),
      launcher_err_(io) {
  make_outlets();
  for (int r = 0; r < options_.ranks; ++r) {
    const std::string prefix = options_.prefix ? str_cat('[', r, "] ") : "";
    ranks_.push_back(std::make_unique<Rank>(
        Rank{lines_to(STDOUT_FILENO, prefix), lines_to(STDERR_FILENO, prefix)}));
  }
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) hear(signals_, signal);
}

void Supervisor::start_launcher(const std::vector<std::string>& command,
                                const Environment& environment) {
  const Child child = start(command, Apart::Session, environment, variables_of_mpi_launchers());
  if (child.error != 0)
    fail(ErrorKind::Unsupported,
         str_cat(command.front(), ' ', Ending{Ending::Kind::NotStarted, child.error}.text()));
  launcher_ = child.pid;
  launcher_name_ = std::filesystem::path(command.front()).filename().string();
  launcher_out_.assign(child.out);
  launcher_err_.assign(child.err);
  const std::string prefix = options_.prefix ? '[' + launcher_name_ + "] " : "";
  launcher_says_ = std::make_unique<Lines>(lines_to(STDERR_FILENO, prefix));
  launcher_complains_ = std::make_unique<Lines>(lines_to(STDERR_FILENO, prefix));
  door_.open();
  if (options_.start_timeout.count() > 0) asio::co_spawn(io_, expect_guards(), asio::detached);
  asio::co_spawn(io_, hear_signals(), asio::detached);
  asio::co_spawn(io_, show(launcher_out_, *launcher_says_), asio::detached);
  asio::co_spawn(io_, show(launcher_err_, *launcher_complains_), asio::detached);
}

// The guards -----------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::expect_guards() {
  start_.expires_after(options_.start_timeout);
  co_await start_.async_wait(asio::use_awaitable);
  const auto late = std::ranges::find_if_not(ranks_, [](const auto& rank) { return rank->came(); });
  if (late == ranks_.end()) co_return;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.start_timeout);
  failed({static_cast<int>(late - ranks_.begin()),
          {Ending::Kind::Missing, static_cast<int>(seconds.count())}});
}

void Supervisor::entered(int number, Socket socket) {
  Rank& rank = *ranks_[static_cast<std::size_t>(number)];
  if (rank.came()) return;
  asio::co_spawn(io_, follow(rank, std::move(socket)), asio::detached);
}

Supervisor::Await<void> Supervisor::follow(Rank& rank, Socket socket) {
  rank.guard = &socket;
  if (&rank == ranks_.front().get()) open_stdin();
  int error = 0;
  if (std::ranges::all_of(ranks_, [](const auto& each) { return each->came(); })) door_.close();
  try {
    for (;;) {
      MessageHeader header;
      co_await asio::async_read(socket, asio::buffer(header), asio::use_awaitable);
      const MessageShape shape = shape_of(header);
      std::string text(shape.size, ' ');
      co_await asio::async_read(socket, asio::buffer(text), asio::use_awaitable);
      heard(rank, shape.kind, text);
    }
  } catch (const boost::system::system_error& failed) {
    if (failed.code() != asio::error::eof && failed.code() != asio::error::connection_reset)
      error = failed.code().value();
  } catch (const std::exception&) {  // it sent nonsense
  }
  lost(rank, error);
}

void Supervisor::heard(Rank& rank, MessageKind kind, const std::string& text) {
  if (kind == MessageKind::Out) rank.out.add(text), ++rank.untaken[0];
  if (kind == MessageKind::Err) rank.err.add(text), ++rank.untaken[1];
  if (kind == MessageKind::Fed) fed();
  if (kind == MessageKind::Ended) {
    rank.ended = true;
    if (&rank == ranks_.front().get()) in_.reset();
    const auto number = std::ranges::find(ranks_, &rank, &std::unique_ptr<Rank>::get);
    if (const Ending ending = ending_of(text); !ending.ok())
      failed({static_cast<int>(number - ranks_.begin()), ending});
  }
  if (kind != MessageKind::Drained) return take(rank);
  rank.out.end();
  rank.err.end();
  rank.drained = true;
  look_whether_over();
}

void Supervisor::lost(Rank& rank, int error) {
  rank.guard = nullptr;
  if (rank.drained) return;
  if (!rank.ended) heard(rank, MessageKind::Ended, to_word({Ending::Kind::Lost, error}));
  heard(rank, MessageKind::Drained, "");
}

}  // namespace coshard::job
