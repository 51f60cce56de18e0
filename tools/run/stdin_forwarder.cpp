#include "tools/run/stdin_forwarder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tools/run/signals.h"

namespace coshard::job {
namespace {

// How often a job in the background looks whether it has come to the foreground.
constexpr int kLook = 200;  // ms

// Reading from it would stop this process by SIGTTIN.
bool is_terminal_of_another_job(int fd) {
  const pid_t foreground = ::tcgetpgrp(fd);
  return foreground > 0 && foreground != ::getpgrp();
}

bool reads_at_once(int fd) {
  return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 && !is_terminal_of_another_job(fd);
}

// EIO: this job came to the background before it could read.
bool is_for_later(int error, int fd) {
  return error == EAGAIN || error == EINTR || (error == EIO && is_terminal_of_another_job(fd));
}

}  // namespace

StdinForwarder::State::State(int fd_, std::size_t most_, Read read_)
    : fd(fd_), woken(::eventfd(0, EFD_CLOEXEC)), most(most_), read(std::move(read_)) {}

StdinForwarder::State::~State() { ::close(woken); }

StdinForwarder::StdinForwarder(int fd, std::size_t most, Read read)
    : state_(std::make_shared<State>(fd, most, std::move(read))) {
  start_thread([state = state_] { serve(*state); }).detach();
}

StdinForwarder::~StdinForwarder() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_one();
  const std::uint64_t one = 1;
  (void)!::write(state_->woken, &one, sizeof one);
}

void StdinForwarder::next() {
  const std::lock_guard lock(state_->mutex);
  ++state_->asked;
  state_->changed.notify_one();
}

// False: the forwarder has been closed.
bool StdinForwarder::wait_for_input(const State& state) {
  for (;;) {
    const bool there = !is_terminal_of_another_job(state.fd);
    std::array<pollfd, 2> what{{{state.woken, POLLIN, 0}, {state.fd, POLLIN, 0}}};
    ::poll(what.data(), there ? 2 : 1, there ? -1 : kLook);
    if (what[0].revents != 0) return false;
    if (there && what[1].revents != 0 && !is_terminal_of_another_job(state.fd)) return true;
  }
}

void StdinForwarder::serve(State& state) {
  std::string piece(state.most, ' ');
  for (;;) {
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.closed || state.asked > 0; });
      if (state.closed) return;
      --state.asked;
    }
    // Where reading does not wait, poll may: for a writer of a FIFO that has none.
    bool waits = !reads_at_once(state.fd);
    ssize_t size = 0;
    do {
      if (waits && !wait_for_input(state)) return;
      size = ::read(state.fd, piece.data(), piece.size());
      waits = true;
    } while (size < 0 && is_for_later(errno, state.fd));
    const int error = size < 0 ? errno : 0;
    const std::lock_guard lock(state.mutex);
    if (state.closed) return;
    state.read(piece.substr(0, size > 0 ? static_cast<std::size_t>(size) : 0), error);
  }
}

}  // namespace coshard::job
