#include "tools/run/supervisor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <coshard/runtime/error.h>
#include "runtime/launch/launcher.h"
#include "runtime/printable.h"
#include "tools/run/child.h"
#include "tools/run/guard.h"
#include "tools/run/signals.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

// After the first failure, how long the others have to report, and to end on SIGKILL.
constexpr milliseconds kReport{2000}, kKill{200};
// How long the launcher has to end without ranks, and on SIGTERM; both within all() of a failure.
constexpr milliseconds kLauncher{10'000}, kLauncherOnSignal{200};

// A reader that has taken nothing for this long has stopped reading.
constexpr milliseconds kQuiet{1000};

bool same_file(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

Supervisor::Supervisor(asio::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      acceptor_(io, "coshard run", [this](const Guard& guard) { return entered(guard); }),
      signals_(io),
      pause_(io),
      start_(io),
      flush_(io),
      launcher_out_(io),
      launcher_err_(io) {
  address_ = acceptor_.open({{}, 0, options_.token}, !options_.hosts.empty(), {});
  make_writers();
  for (int r = 0; r < options_.ranks; ++r) {
    const std::string prefix = options_.prefix ? str_cat('[', r, "] ") : "";
    ranks_.push_back(std::make_unique<Rank>(
        Rank{lines_to(STDOUT_FILENO, prefix), lines_to(STDERR_FILENO, prefix), {}, r}));
  }
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
    hear(signals_, signal);
}

void Supervisor::start_launcher(const std::vector<std::string>& command,
                                const Environment& environment) {
  const Child child = start(command, Apart::Session, environment, variables_of_mpi_launchers());
  if (child.error != 0)
    fail(ErrorKind::Unsupported,
         str_cat(command.front(), ' ',
                 ExitStatus{ExitStatus::Kind::NotStarted, child.error}.text()));
  launcher_ = child.pid;
  launcher_name_ = std::filesystem::path(command.front()).filename().string();
  launcher_out_.assign(child.out);
  launcher_err_.assign(child.err);
  const std::string prefix = options_.prefix ? '[' + launcher_name_ + "] " : "";
  launcher_says_ = std::make_unique<Lines>(lines_to(STDERR_FILENO, prefix));
  launcher_complains_ = std::make_unique<Lines>(lines_to(STDERR_FILENO, prefix));
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
  failed({static_cast<int>(late - ranks_.begin()),
          {ExitStatus::Kind::Missing, static_cast<int>(options_.start_timeout.count())}});
}

bool Supervisor::entered(const Guard& guard) {
  if (guard->process < 0 || guard->process >= options_.ranks) return false;
  Rank& rank = *ranks_[static_cast<std::size_t>(guard->process)];
  if (rank.came()) return false;
  rank.guard = guard;
  guard->listen(
      [this, &rank](const Guard&, const ControlMessage& message) { received(rank, message); },
      [this, &rank](const Guard&, const std::string& why) { lost(rank, why); });
  if (rank.number == 0) open_stdin();
  if (std::ranges::all_of(ranks_, [](const auto& each) { return each->came(); })) acceptor_.close();
  return true;
}

void Supervisor::received(Rank& rank, const ControlMessage& message) {
  const std::string& text = message.text;
  switch (message.kind) {
    case MessageKind::Output: rank.out.add(text), ++rank.untaken[0]; return take(rank);
    case MessageKind::ErrorOutput: rank.err.add(text), ++rank.untaken[1]; return take(rank);
    case MessageKind::InputTaken: return fed();
    case MessageKind::Failed:  // empty: it has recovered
      if (rank.ended) return;  // by what it has left behind
      rank.record = coshard::record_of(std::string_view(text));
      rank.recorded = message.process == 1 ? ++received_ : 0;
      return;
    case MessageKind::Ended:
      rank.ended = true;
      if (rank.number == 0) in_.reset();
      if (const ExitStatus exit_status = exit_status_of(text); !exit_status.ok())
        failed({rank.number, exit_status});
      return take(rank);
    case MessageKind::Drained: return drained(rank);
    default: fail(ErrorKind::CommFailed, "not a message of a guard");
  }
}

void Supervisor::drained(Rank& rank) {
  rank.out.end();
  rank.err.end();
  rank.drained = true;
  check_over();
}

void Supervisor::lost(Rank& rank, const std::string& why) {
  rank.guard = nullptr;
  if (rank.drained) return;
  if (!std::exchange(rank.ended, true)) failed({rank.number, {ExitStatus::Kind::Lost, 0, why}});
  drained(rank);
}

void Supervisor::send_signal(int signal) {
  for (const auto& rank : ranks_)
    if (rank->guard != nullptr) rank->guard->send({MessageKind::Signal, signal, ""});
}

// Signals --------------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::hear_signals() {
  for (;;) {
    const int signal = co_await signals_.async_wait(asio::use_awaitable);
    if (signal == SIGCHLD)
      reap_launcher();
    else if (signal == SIGTSTP)
      asio::co_spawn(io_, stop(), asio::detached);
    else if (signal == SIGCONT)
      is_stopping_ = false, send_signal(signal);
    else if (signal == SIGUSR1 || signal == SIGUSR2)
      send_signal(signal);
    else
      pass_on(signal);
  }
}

// Guards that have not connected get the signal through the launcher, whose exit code then means
// nothing.
void Supervisor::pass_on(int signal) {
  const bool again =
      signal == SIGINT && std::exchange(interrupted_, interrupted_ || signal == SIGINT);
  interrupted_twice_ = interrupted_twice_ || again;
  told_to_end_ = true;
  send_signal(again ? SIGKILL : signal);
  const bool all_came = std::ranges::all_of(ranks_, [](const auto& rank) { return rank->came(); });
  if (all_came || launcher_status_) return;
  ::kill(launcher_, again ? SIGKILL : SIGTERM);
  failed({-1, {ExitStatus::Kind::Killed, signal}});
}

// As Ctrl-Z does it: the ranks first, then this process. SIGCONT continues both.
Supervisor::Await<void> Supervisor::stop() {
  is_stopping_ = true;
  send_signal(SIGTSTP);
  const auto has_sent = [](const auto& rank) {
    return rank->guard == nullptr || rank->guard->has_sent_all();
  };
  asio::steady_timer again(io_);
  for (int i = 0; i < 50 && !std::ranges::all_of(ranks_, has_sent); ++i) {
    again.expires_after(milliseconds(1));
    co_await again.async_wait(asio::use_awaitable);
  }
  if (std::exchange(is_stopping_, false)) ::raise(SIGSTOP);
}

// Failures -------------------------------------------------------------------------------------

void Supervisor::failed(Failure failure) {
  failure.number = ++received_;
  failure.by_signal = ends_others_;
  if (failure.rank >= 0) failures_.push_back(failure);
  if (first_) return;
  first_ = failure;
  if (!over_) asio::co_spawn(io_, end_others(), asio::detached);
}

Supervisor::Await<void> Supervisor::pause(milliseconds time) {
  error_code cancelled;
  pause_.expires_after(time);
  co_await pause_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

Supervisor::Await<void> Supervisor::end_others() {
  if (first_->exit_status.kind != ExitStatus::Kind::Unwritten) co_await pause(kReport);
  if (over_) co_return;
  ends_others_ = true;
  send_signal(SIGTERM);
  co_await pause(options_.grace);
  if (over_) co_return;
  send_signal(SIGKILL);
  co_await pause(kKill);
  for (const auto& rank : ranks_)  // gives up on those that have not answered
    if (!rank->drained) drained(*rank);
}

void Supervisor::check_over() {
  if (over_ || !std::ranges::all_of(ranks_, &Rank::drained)) return;
  over_ = true;
  for (const auto& rank : ranks_)
    if (rank->guard != nullptr) rank->guard->send({MessageKind::Leave, 0, ""});
  pause_.cancel();
  asio::co_spawn(io_, launcher_status_ ? finish() : end_launcher(), asio::detached);
}

// The launcher ---------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::end_launcher() {
  milliseconds patience = kLauncher;
  if (first_) {
    const auto since = std::chrono::duration_cast<milliseconds>(Clock::now() - first_->at);
    patience = std::max(kLauncherOnSignal, all() - kLauncherOnSignal - since);
  }
  co_await pause(patience);
  if (launcher_status_) co_return;
  ends_launcher_ = true;
  ::kill(launcher_, SIGTERM);
  co_await pause(kLauncherOnSignal);
  if (launcher_status_) co_return;
  ::kill(-launcher_, SIGKILL);
}

Supervisor::Await<void> Supervisor::show(Descriptor& from, Lines& to) {
  ::fcntl(from.native_handle(), F_SETFL, O_NONBLOCK);
  do {
    co_await from.async_wait(Descriptor::wait_read, asio::use_awaitable);
  } while (show_what_is_there(from, to));
}

// If a rank ended without its guard's report, only the launcher can know why.
bool Supervisor::launcher_knows_more() const {
  if (!first_) return true;
  const ExitStatus::Kind kind = first_->exit_status.kind;
  if (first_->rank < 0) return kind != ExitStatus::Kind::Unwritten;
  return kind == ExitStatus::Kind::Lost || kind == ExitStatus::Kind::Missing;
}

// False: the stream has ended.
bool Supervisor::show_what_is_there(Descriptor& from, Lines& to) {
  std::array<char, 4096> text;
  ssize_t size = 0;
  while ((size = ::read(from.native_handle(), text.data(), text.size())) > 0) {
    const std::string_view said(text.data(), static_cast<std::size_t>(size));
    if (launcher_knows_more()) to.add(said);
  }
  return size < 0 && errno == EAGAIN;
}

void Supervisor::reap_launcher() {
  int status = 0;
  if (launcher_status_ || ::waitpid(launcher_, &status, WNOHANG) != launcher_) return;
  launcher_status_ = exit_status_of(status);
  ::kill(-launcher_, SIGKILL);  // processes that it has left behind
  show_what_is_there(launcher_out_, *launcher_says_);
  show_what_is_there(launcher_err_, *launcher_complains_);
  if (!over_ || !(launcher_status_->ok() || ends_launcher_)) failed({-1, *launcher_status_});
  if (over_) {
    asio::co_spawn(io_, finish(), asio::detached);
    return;
  }
  for (const auto& rank : ranks_)
    if (rank->guard == nullptr && !rank->drained) drained(*rank);
}

// What to say of it ----------------------------------------------------------------------------

// What the program of that rank has said of it; null: nothing.
const FailureRecord* Supervisor::record_of(const Failure& failure) const {
  if (failure.rank < 0) return nullptr;
  const std::optional<FailureRecord>& record =
      ranks_[static_cast<std::size_t>(failure.rank)]->record;
  return record ? &*record : nullptr;
}

// What arrived first: the record of a program that has failed, or its end, if it wrote none. Next
// best is a record of a program that was ended before it had ended itself, then one that only
// reports a peer's failure.
Supervisor::Failure Supervisor::cause_of_all() const {
  if (first_->rank < 0) return *first_;
  enum Rating { Own, OwnButEnded, OfPeer, Ended };
  const auto when = [this](const Failure& failure) {
    const FailureRecord* const record = record_of(failure);
    const int recorded =
        record == nullptr ? 0 : ranks_[static_cast<std::size_t>(failure.rank)]->recorded;
    const Rating rating = record != nullptr && record->of_peer ? OfPeer
                          : !failure.by_signal                 ? Own
                          : recorded > 0                       ? OwnButEnded
                                                               : Ended;
    return std::pair(rating, recorded > 0 ? recorded : failure.number);
  };
  return *std::ranges::min_element(failures_, {}, when);
}

std::string Supervisor::cause() const {
  if (!first_) return "";
  const Failure first = cause_of_all();
  const ExitStatus& exit_status = first.exit_status;
  if (exit_status.kind == ExitStatus::Kind::Unwritten) return "output " + exit_status.text();
  if (first.rank < 0) return str_cat(launcher_name_, ' ', exit_status.text());
  std::string who = str_cat("rank ", first.rank);
  if (exit_status.kind == ExitStatus::Kind::Missing && !options_.hosts.empty())
    who += " on " + host_of(options_.hosts, first.rank);
  if (exit_status.kind == ExitStatus::Kind::NotStarted)
    return str_cat(who, ": ", options_.program, ' ', exit_status.text());
  const FailureRecord* const record = record_of(first);
  const std::string why = record == nullptr ? "" : ": " + record->line();
  if (exit_status.kind == ExitStatus::Kind::Lost && launcher_status_ && !launcher_status_->ok()) {
    const std::string launcher = str_cat(launcher_name_, ' ', launcher_status_->text());
    const auto lost =
        std::ranges::count(failures_, ExitStatus::Kind::Lost,
                           [](const Failure& failure) { return failure.exit_status.kind; });
    if (lost > 1 && record == nullptr) return launcher;  // which was the first, nobody can know
    return str_cat(who, ' ', exit_status.text(), why, "; ", launcher);
  }
  const bool killed = interrupted_twice_ && exit_status.kind == ExitStatus::Kind::Killed &&
                      exit_status.value == SIGKILL;  // not by the kernel for want of memory
  const std::string how = first.by_signal && record != nullptr ? "failed"
                          : killed                             ? "was killed by SIGKILL"
                                                               : exit_status.text();
  return str_cat(who, ' ', how, why);
}

int Supervisor::code() const {
  if (!first_) return 0;
  const Failure cause = cause_of_all();
  const bool lost = cause.exit_status.kind == ExitStatus::Kind::Lost;
  if (cause.by_signal && record_of(cause) != nullptr) return 1;
  const int code = (lost && launcher_status_ ? *launcher_status_ : cause.exit_status).code();
  return code == 0 ? 1 : code;
}

// The launchers' own forwarding loses input or ends the job if process 0 does not read it in time.
void Supervisor::open_stdin() {
  in_ = std::make_unique<StdinForwarder>(
      STDIN_FILENO, kLongestPiece, [this](std::string text, int error) {
        asio::post(io_, [this, text = std::move(text), error] { pass_on_input(text, error); });
      });
  in_->next();
}

void Supervisor::pass_on_input(const std::string& text, int error) {
  const Guard guard = ranks_.front()->guard;
  if (in_ == nullptr || guard == nullptr) return;
  if (error != 0)
    err_->write(STDERR_FILENO,
                str_cat("warning: stdin could not be read: ", std::strerror(error), '\n'));
  guard->send({MessageKind::Input, 0, text});
  if (text.empty()) return in_.reset();
  if (++unfed_ < kMostAhead) in_->next();
}

void Supervisor::fed() {
  if (unfed_-- == kMostAhead && in_ != nullptr) in_->next();
}

void Supervisor::make_writers() {
  const auto make = [this] {
    return std::make_shared<OutputWriter>([this] { asio::post(io_, [this] { written(); }); });
  };
  out_ = make();
  err_ = same_file(STDOUT_FILENO, STDERR_FILENO) ? out_ : make();
}

Lines Supervisor::lines_to(int fd, const std::string& prefix) {
  return {prefix, [this, fd, writer = fd == STDOUT_FILENO ? out_ : err_](std::string_view text) {
            if (writer == err_ && !text.empty()) last_error_byte_ = text.back();
            writer->write(fd, text);
          }};
}

// Acknowledges output, so that the guard sends more. Once the program has ended, all of it at once:
// it is not much, and holds the program's last words.
void Supervisor::take(Rank& rank) {
  for (const std::size_t stream : {0, 1}) {
    int& untaken = rank.untaken[stream];
    if (!rank.ended && !(stream == 0 ? out_ : err_)->has_room()) continue;
    for (; untaken > 0; --untaken)
      if (rank.guard != nullptr)
        rank.guard->send({stream == 0 ? MessageKind::OutputTaken : MessageKind::ErrorOutputTaken});
  }
}

void Supervisor::written() {
  for (const auto& rank : ranks_) take(*rank);
  for (const auto& writer : {out_, err_})
    if (writer->error() == EPIPE) failed({-1, {ExitStatus::Kind::Unwritten, EPIPE}});
  flush_.cancel();
}

bool Supervisor::gives_up(const OutputWriter& writer) const {
  if (!first_ && !told_to_end_) return false;
  const Clock::time_point now = Clock::now();
  return now - writer.moved() >= kQuiet && (!first_ || now - first_->at >= all());
}

Supervisor::Await<void> Supervisor::flush(const OutputWriter& writer) {
  boost::system::error_code cancelled;
  while (writer.waiting() > 0 && !gives_up(writer)) {
    flush_.expires_after(milliseconds(100));
    co_await flush_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

// The job is over.
Supervisor::Await<void> Supervisor::finish() {
  co_await flush(*out_);
  if (const std::size_t left = out_->waiting(); left > 0)
    err_->write(STDERR_FILENO,
                str_cat("warning: nobody reads stdout; its last ", left, " bytes are lost\n"));
  int error = out_->error() != 0 ? out_->error() : err_->error();
  if (out_->waiting() > 0) error = EINTR;  // given up after a signal
  if (!first_ && error != 0) first_ = Failure{-1, {ExitStatus::Kind::Unwritten, error}, {}};
  if (first_)
    err_->write(STDERR_FILENO,
                str_cat(last_error_byte_ == '\n' ? "" : "\n", "error: ", printable(cause()), '\n'));
  co_await flush(*err_);
  io_.stop();
}

}  // namespace coshard::job
