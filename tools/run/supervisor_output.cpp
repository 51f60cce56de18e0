// The supervisor's input and output, and how long it waits for readers.
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>

#include <coshard/runtime/error.h>
#include "runtime/printable.h"
#include "tools/run/supervisor.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// A reader that has taken nothing for this long has stopped reading.
constexpr milliseconds kQuiet{1000};

bool same_file(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

// The launchers' own forwarding loses input or ends the job if process 0 does not read it in time.
void Supervisor::open_stdin() {
  in_ = std::make_unique<Inlet>(STDIN_FILENO, kLongestPiece, [this](std::string text, int error) {
    asio::post(io_, [this, text = std::move(text), error] { pass_on_input(text, error); });
  });
  in_->next();
}

void Supervisor::pass_on_input(const std::string& text, int error) {
  Socket* const guard = ranks_.front()->guard;
  if (in_ == nullptr || guard == nullptr) return;
  if (error != 0)
    err_->write(STDERR_FILENO,
                str_cat("warning: stdin could not be read: ", std::strerror(error), '\n'));
  const std::array<unsigned char, 3> order{kInput, static_cast<unsigned char>(text.size() & 255),
                                           static_cast<unsigned char>(text.size() >> 8)};
  const std::array<asio::const_buffer, 2> all{asio::buffer(order), asio::buffer(text)};
  boost::system::error_code ignored;
  asio::write(*guard, all, ignored);
  if (text.empty()) return in_.reset();
  if (++unfed_ < kMostAhead) in_->next();
}

void Supervisor::fed() {
  if (unfed_-- == kMostAhead && in_ != nullptr) in_->next();
}

void Supervisor::make_outlets() {
  const auto make = [this] {
    return std::make_shared<Outlet>([this] { asio::post(io_, [this] { written(); }); });
  };
  out_ = make();
  err_ = same_file(STDOUT_FILENO, STDERR_FILENO) ? out_ : make();
}

Lines Supervisor::lines_to(int fd, const std::string& prefix) const {
  return {prefix, [fd, outlet = fd == STDOUT_FILENO ? out_ : err_](std::string_view text) {
            outlet->write(fd, text);
          }};
}

// Acknowledges output, so that the guard sends more. Once the program has ended, all of it at once:
// it is not much, and holds the program's last words.
void Supervisor::take(Rank& rank) {
  for (const std::size_t stream : {0, 1}) {
    int& untaken = rank.untaken[stream];
    if (!rank.ended && !(stream == 0 ? out_ : err_)->has_room()) continue;
    for (; untaken > 0; --untaken)
      tell(rank.guard, static_cast<unsigned char>(stream == 0 ? kTakenOut : kTakenErr));
  }
}

void Supervisor::written() {
  for (const auto& rank : ranks_) take(*rank);
  for (const auto& outlet : {out_, err_})
    if (outlet->error() == EPIPE) failed({-1, {Ending::Kind::Unwritten, EPIPE}});
  flush_.cancel();
}

bool Supervisor::gives_up(const Outlet& outlet) const {
  if (!first_ && !told_to_end_) return false;
  const Clock::time_point now = Clock::now();
  return now - outlet.moved() >= kQuiet && (!first_ || now - first_->at >= kAll);
}

Supervisor::Await<void> Supervisor::flush(const Outlet& outlet) {
  boost::system::error_code cancelled;
  while (outlet.waiting() > 0 && !gives_up(outlet)) {
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
  if (!first_ && error != 0) first_ = Failure{-1, {Ending::Kind::Unwritten, error}, {}};
  if (first_) err_->write(STDERR_FILENO, str_cat("error: ", printable(cause()), '\n'));
  co_await flush(*err_);
  io_.stop();
}

}  // namespace coshard::job
