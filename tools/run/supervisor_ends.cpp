// Signals, failures, the launcher, and how a job ends.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <csignal>

#include <coshard/runtime/error.h>
#include "tools/run/supervisor.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

// After the first failure, how long the others have to report, to end on SIGTERM, and on SIGKILL.
constexpr milliseconds kReport{2000}, kTerminate{400}, kKill{200};
// How long the launcher has to end without ranks, and on SIGTERM; both within kAll of a failure.
constexpr milliseconds kLauncher{10'000}, kLauncherOnSignal{200};
// The most time between the ends of processes after one failure; coshard's wait for each other.
constexpr milliseconds kTogether{300};

const Ending kAborted{Ending::Kind::Killed, SIGABRT};

}  // namespace

void Supervisor::tell(Socket* guard, unsigned char byte) {
  error_code ignored;
  if (guard != nullptr) asio::write(*guard, asio::buffer(&byte, 1), ignored);
}

void Supervisor::send_signal(int signal) {
  for (const auto& rank : ranks_) tell(rank->guard, static_cast<unsigned char>(signal));
}

// Signals --------------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::hear_signals() {
  for (;;) {
    const int signal = co_await signals_.async_wait(asio::use_awaitable);
    if (signal == SIGCHLD)
      reap_launcher();
    else
      pass_on(signal);
  }
}

// Guards that have not connected get the signal through the launcher, whose ending then means
// nothing.
void Supervisor::pass_on(int signal) {
  const bool again =
      signal == SIGINT && std::exchange(interrupted_, interrupted_ || signal == SIGINT);
  told_to_end_ = true;
  send_signal(again ? SIGKILL : signal);
  const bool all_came = std::ranges::all_of(ranks_, [](const auto& rank) { return rank->came(); });
  if (all_came || launcher_ending_) return;
  ::kill(launcher_, again ? SIGKILL : SIGTERM);
  failed({-1, {Ending::Kind::Killed, signal}});
}

// Failures -------------------------------------------------------------------------------------

void Supervisor::failed(Failure failure) {
  if (!first_ || (failure.rank >= 0 && !ends_others_)) failures_.push_back(failure);
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
  if (first_->ending.kind != Ending::Kind::Unwritten) co_await pause(kReport);
  if (over_) co_return;
  ends_others_ = true;
  send_signal(SIGTERM);
  co_await pause(kTerminate);
  if (over_) co_return;
  send_signal(SIGKILL);
  co_await pause(kKill);
  for (const auto& rank : ranks_)  // gives up on those that have not answered
    if (!rank->drained) heard(*rank, MessageKind::Drained, "");
}

void Supervisor::look_whether_over() {
  if (over_ || !std::ranges::all_of(ranks_, &Rank::drained)) return;
  over_ = true;
  for (const auto& rank : ranks_) tell(rank->guard, kLeave);
  pause_.cancel();
  asio::co_spawn(io_, launcher_ending_ ? finish() : end_launcher(), asio::detached);
}

// The launcher ---------------------------------------------------------------------------------

Supervisor::Await<void> Supervisor::end_launcher() {
  milliseconds patience = kLauncher;
  if (first_) {
    const auto since = std::chrono::duration_cast<milliseconds>(Clock::now() - first_->at);
    patience = std::max(kLauncherOnSignal, kAll - kLauncherOnSignal - since);
  }
  co_await pause(patience);
  if (launcher_ending_) co_return;
  ::kill(launcher_, SIGTERM);
  co_await pause(kLauncherOnSignal);
  if (launcher_ending_) co_return;
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
  const Ending::Kind kind = first_->ending.kind;
  if (first_->rank < 0) return kind != Ending::Kind::Unwritten;
  return kind == Ending::Kind::Lost || kind == Ending::Kind::Missing;
}

// MPI_Abort ends all processes at once, guards too; Open MPI says who called it.
void Supervisor::note_why(std::string_view said) {
  constexpr std::string_view kInvoked = "MPI_ABORT was invoked on rank ";
  const std::size_t at = said.find(kInvoked);
  if (at == std::string_view::npos) return;
  const std::string_view rank = said.substr(at + kInvoked.size());
  aborted_ = str_cat("rank ", rank.substr(0, rank.find(' ')), " called MPI_Abort");
}

// False: the stream has ended.
bool Supervisor::show_what_is_there(Descriptor& from, Lines& to) {
  std::array<char, 4096> text;
  ssize_t size = 0;
  while ((size = ::read(from.native_handle(), text.data(), text.size())) > 0) {
    const std::string_view said(text.data(), static_cast<std::size_t>(size));
    note_why(said);
    if (launcher_knows_more()) to.add(said);
  }
  return size < 0 && errno == EAGAIN;
}

void Supervisor::reap_launcher() {
  int status = 0;
  if (launcher_ending_ || ::waitpid(launcher_, &status, WNOHANG) != launcher_) return;
  launcher_ending_ = ending_of(status);
  ::kill(-launcher_, SIGKILL);  // processes that it has left behind
  show_what_is_there(launcher_out_, *launcher_says_);
  show_what_is_there(launcher_err_, *launcher_complains_);
  if (!over_ || !launcher_ending_->ok()) failed({-1, *launcher_ending_});
  if (over_) {
    asio::co_spawn(io_, finish(), asio::detached);
    return;
  }
  for (const auto& rank : ranks_)
    if (rank->guard == nullptr && !rank->drained) heard(*rank, MessageKind::Drained, "");
}

// What to say of it ----------------------------------------------------------------------------

std::string Supervisor::last_words(const Failure& failure) const {
  const Lines& err = ranks_[static_cast<std::size_t>(failure.rank)]->err;
  const bool is_last = err.error().empty() && !err.uncaught().empty();
  return failure.ending == kAborted && is_last ? err.uncaught() : err.last();
}

// Of a rank that has ended in its own way or by an exception that nothing caught.
std::optional<Blame> Supervisor::blame_in(const Failure& failure) const {
  if (failure.rank < 0) return std::nullopt;
  if (failure.ending.kind != Ending::Kind::Exited && failure.ending != kAborted)
    return std::nullopt;
  return blame_of(last_words(failure));
}

// The failure of which its error tells; none: the words are the rank's own, or nothing else failed.
// A process may run several ranks: the one that gives the reason itself is the one meant.
const Supervisor::Failure* Supervisor::blamed_by(const Failure& failure) const {
  const std::optional<Blame> blame = blame_in(failure);
  if (!blame) return nullptr;
  const Failure* found = nullptr;
  for (const Failure& other : failures_) {
    if (other.rank < 0 || other.rank == failure.rank) continue;
    const std::optional<Blame> theirs = blame_in(other);
    if (theirs && theirs->reason == blame->text) continue;  // it only quotes this failure
    const std::string own = theirs ? theirs->text : last_words(other);
    if (!blame->reason.empty() && (theirs ? own == blame->reason : own.ends_with(blame->reason)))
      return &other;
    if (other.rank == blame->number && (blame->process || !may_be_an_echo(other))) found = &other;
  }
  return found;
}

// Whether its error says that another rank has failed, and that is so.
bool Supervisor::tells_of_another(const Failure& failure) const {
  const Failure* const blamed = blamed_by(failure);
  const Failure* next = blamed;
  for (std::size_t steps = failures_.size(); next != nullptr && steps > 0; --steps) {
    if (next->rank == failure.rank) return false;  // they blame each other
    next = blamed_by(*next);
  }
  return blamed != nullptr;
}

// A process of coshard reports no failure of another rank, and ends with this code. An error from
// which it recovered earlier is not the cause of its end.
bool Supervisor::may_be_an_echo(const Failure& failure) const {
  const Lines& err = ranks_[static_cast<std::size_t>(failure.rank)]->err;
  const bool says_why = is_of_a_rank(err.error()) || blame_in(failure) ||
                        (!err.error().empty() && failure.at - err.error_at() < kTogether);
  return failure.ending == Ending{Ending::Kind::Exited, 1} && !says_why;
}

// In the order in which they began: a rank that throws reports it, then waits for the others.
std::vector<Supervisor::Failure> Supervisor::failures_in_order() const {
  std::vector<Failure> failures = failures_;
  for (Failure& failure : failures) {
    if (failure.rank < 0 || failure.ending.kind != Ending::Kind::Exited) continue;
    const Lines& err = ranks_[static_cast<std::size_t>(failure.rank)]->err;
    if (is_of_a_rank(err.error())) failure.at = std::min(failure.at, err.error_at());
  }
  std::ranges::stable_sort(failures, {}, &Failure::at);
  return failures;
}

// The earliest failure that is not the consequence of another. An echo and the rank that reports
// the cause end together, in any order.
Supervisor::Failure Supervisor::cause_of_all() const {
  if (first_->rank < 0) return *first_;
  std::optional<Failure> cause;
  for (const Failure& failure : failures_in_order()) {
    if (tells_of_another(failure)) continue;
    if (!cause) cause = failure;
    if (failure.at - cause->at > kTogether) break;
    if (!may_be_an_echo(failure)) return failure;
  }
  return cause.value_or(*first_);
}

// With MPICH the process itself reports it.
std::string Supervisor::aborted() const {
  if (!aborted_.empty()) return aborted_;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r]->err.last().find("application called MPI_Abort(") != std::string::npos)
      return str_cat("rank ", r, " called MPI_Abort");
  return "";
}

std::string Supervisor::cause() const {
  if (!first_) return "";
  if (const std::string who = aborted(); !who.empty() && launcher_ending_)
    return str_cat(who, "; ", launcher_name_, ' ', launcher_ending_->text());
  const Failure first = cause_of_all();
  const Ending& ending = first.ending;
  if (ending.kind == Ending::Kind::Unwritten) return "output " + ending.text();
  if (first.rank < 0) return str_cat(launcher_name_, ' ', ending.text());
  std::string who = str_cat("rank ", first.rank);
  if (ending.kind == Ending::Kind::Missing && !options_.hosts.empty())
    who += " on " + host_of(options_.hosts, first.rank);
  if (ending.kind == Ending::Kind::NotStarted)
    return str_cat(who, ": ", options_.program, ' ', ending.text());
  if (ending.kind == Ending::Kind::Lost && launcher_ending_ && !launcher_ending_->ok())
    return str_cat(who, ' ', ending.text(), "; ", launcher_name_, ' ', launcher_ending_->text());
  std::string last = last_words(first);
  if (ending.kind != Ending::Kind::Exited || last.empty()) return who + ' ' + ending.text();
  if (last.starts_with("error: ")) last.erase(0, 7);
  return str_cat(who, ' ', ending.text(), ": ", last);
}

int Supervisor::code() const {
  if (!first_) return 0;
  // Guards that the launcher ended may have reported their own end first.
  if (launcher_ending_ && !launcher_ending_->ok() && !aborted().empty())
    return launcher_ending_->code();
  const Ending ending = cause_of_all().ending;
  const bool lost = ending.kind == Ending::Kind::Lost;
  const int code = (lost && launcher_ending_ ? *launcher_ending_ : ending).code();
  return code == 0 ? 1 : code;
}

}  // namespace coshard::job
