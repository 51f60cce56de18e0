#pragma once
// Writes from its own thread, so that a reader who does not read blocks only that thread.
// O_NONBLOCK would change the descriptor for all processes that share it.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace coshard::job {

class OutputWriter {
 public:
  using Clock = std::chrono::steady_clock;
  // `written` is called on that thread whenever a piece has been written, or has failed.
  explicit OutputWriter(std::function<void()> written);
  ~OutputWriter();  // drops what is not written yet
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  void write(int fd, std::string_view text);  // returns at once
  // False: callers that can wait before writing more should do so.
  bool has_room() const;
  std::size_t waiting() const;      // bytes that are not written yet
  Clock::time_point moved() const;  // when bytes were last written
  int error() const;                // errno of the first write that failed; 0: none did

 private:
  struct Piece {
    int fd;
    std::string text;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> written;
    std::deque<Piece> queue;
    std::size_t waiting = 0;
    Clock::time_point moved = Clock::now();
    int error = 0;
    bool closed = false;
  };
  static void serve(const std::shared_ptr<State>& state);
  static bool write_out(State& state, const Piece& piece);

  // Outlives this object if the thread hangs in a write.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace coshard::job
