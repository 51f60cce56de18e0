#include "tools/run/output_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tools/run/signals.h"

namespace coshard::job {
namespace {

constexpr std::size_t kRoom = 1 << 18, kLongestQueued = 1 << 16;
// The longest write: it returns when all is taken, and only then shows that the reader reads.
constexpr std::size_t kAtOnce = 4096;

// Works even if another process has set O_NONBLOCK. -1: see errno.
ssize_t write_some(int fd, std::string_view text) {
  for (;;) {
    const ssize_t size = ::write(fd, text.data(), text.size());
    if (size >= 0 || (errno != EAGAIN && errno != EINTR)) return size;
    pollfd writable{fd, POLLOUT, 0};
    if (errno == EAGAIN) ::poll(&writable, 1, -1);
  }
}

}  // namespace

OutputWriter::OutputWriter(std::function<void()> written) { state_->written = std::move(written); }

OutputWriter::~OutputWriter() {
  bool hangs = false;
  {
    const std::lock_guard lock(state_->mutex);
    hangs = state_->waiting > 0;
    state_->closed = true;
    state_->written = nullptr;
  }
  state_->changed.notify_one();
  if (!thread_.joinable()) return;
  if (hangs)
    thread_.detach();
  else
    thread_.join();
}

void OutputWriter::write(int fd, std::string_view text) {
  if (text.empty()) return;
  if (!thread_.joinable()) thread_ = start_thread([state = state_] { serve(state); });
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting == 0) state_->moved = Clock::now();
  state_->waiting += text.size();
  auto& queue = state_->queue;
  if (queue.empty() || queue.back().fd != fd || queue.back().text.size() > kLongestQueued)
    queue.push_back({fd, ""});
  queue.back().text += text;
  state_->changed.notify_one();
}

bool OutputWriter::has_room() const { return waiting() < kRoom; }

std::size_t OutputWriter::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

OutputWriter::Clock::time_point OutputWriter::moved() const {
  const std::lock_guard lock(state_->mutex);
  return state_->moved;
}

int OutputWriter::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

void OutputWriter::serve(const std::shared_ptr<State>& state) {
  for (;;) {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->closed || !state->queue.empty(); });
    if (state->closed) return;
    const Piece piece = std::move(state->queue.front());
    state->queue.pop_front();
    lock.unlock();
    if (!write_out(*state, piece)) return;
  }
}

// False if the writer has been closed.
bool OutputWriter::write_out(State& state, const Piece& piece) {
  for (std::string_view rest = piece.text; !rest.empty();) {
    const ssize_t size = write_some(piece.fd, rest.substr(0, kAtOnce));
    const int error = size < 0 ? errno : 0;
    const std::size_t gone = size < 0 ? rest.size() : static_cast<std::size_t>(size);
    rest.remove_prefix(gone);
    const std::lock_guard lock(state.mutex);
    state.waiting -= gone;
    state.moved = Clock::now();
    if (state.error == 0) state.error = error;
    if (state.closed) return false;
    state.written();
  }
  return true;
}

}  // namespace coshard::job
