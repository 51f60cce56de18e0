#pragma once
// Reads from its own thread, one piece whenever it is asked to. O_NONBLOCK would change the
// descriptor for all processes that share it, and epoll refuses files.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace coshard::job {

class StdinForwarder {
 public:
  // `text` is empty at the end; `error` is errno if the end is a failure to read, otherwise 0.
  using Read = std::function<void(std::string text, int error)>;
  // `read` is called on that thread for each next().
  StdinForwarder(int fd, std::size_t most, Read read);
  ~StdinForwarder();  // waits for no input
  StdinForwarder(const StdinForwarder&) = delete;
  StdinForwarder& operator=(const StdinForwarder&) = delete;

  // Reads a piece of at most `most` bytes, as soon as there is something to read. The terminal of
  // another foreground job is left to that job.
  void next();

 private:
  struct State {
    State(int fd_, std::size_t most_, Read read_);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    const int fd, woken;  // `woken` is readable once the forwarder is closed
    const std::size_t most;
    const Read read;
    std::mutex mutex;
    std::condition_variable changed;
    int asked = 0;
    bool closed = false;
  };
  static void serve(State& state);
  static bool wait_for_input(const State& state);

  // Outlives this object if another process takes the input that the thread was told of.
  const std::shared_ptr<State> state_;
};

}  // namespace coshard::job
