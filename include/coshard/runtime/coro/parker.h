#pragma once
// Where a rank sleeps until it is woken: a token. The rank owns its parker and sleeps on its own
// thread or fiber; any thread may unpark it while the parker lives.
#include <atomic>
#include <cstdint>

namespace boost::asio {
class io_context;
}  // namespace boost::asio

#pragma GCC visibility push(default)
namespace coshard {

class Parker {
 public:
  virtual ~Parker() = default;

  // On the rank: sleeps until unpark(), which may have come since the last park(), or until
  // deadline_ns of now() (0: none). May return early. Writes before unpark() are visible after the
  // park() it ends. `asio`: an io_context of this rank that has work: sleeping runs at most one of
  // its handlers, whose exceptions propagate out of park(); once it has no work left, park()
  // returns. Null: ignored.
  virtual void park(std::int64_t deadline_ns, boost::asio::io_context* asio = nullptr) = 0;
  virtual void unpark() noexcept = 0;  // any thread
  // Steady nanoseconds, always positive; virtual time in a simulation.
  virtual std::int64_t now() const = 0;
  // Fibers: park() lets others run, so never spin.
  virtual bool shares_its_thread() const = 0;
};

// For a rank with its own thread: sleeps on a futex, or in its io_context, where a deadline may be
// late by a millisecond (epoll's resolution). unpark() is one atomic exchange while the rank is
// awake. The io_context may be destroyed as soon as park() has returned.
class ThreadParker final : public Parker {
 public:
  ThreadParker() = default;
  ThreadParker(const ThreadParker&) = delete;
  ThreadParker& operator=(const ThreadParker&) = delete;

  void park(std::int64_t deadline_ns, boost::asio::io_context* asio = nullptr) override;
  void unpark() noexcept override;
  std::int64_t now() const override;
  bool shares_its_thread() const override { return false; }

 private:
  //   state       park() makes it       unpark() makes it
  //   kAwake      kOnFutex or kInAsio   kUnparked
  //   kUnparked   kAwake                kUnparked
  //   kOnFutex    kAwake                kUnparked, and wakes the futex
  //   kInAsio     kAwake                kUnparked, and posts to asio_, then sets posted_
  enum State : std::uint32_t { kAwake, kUnparked, kOnFutex, kInAsio };

  bool fall_asleep(State how);
  void sleep_on_futex(std::int64_t deadline_ns);
  void sleep_in_asio(std::int64_t deadline_ns);
  void leave_asio() noexcept;

  std::atomic<std::uint32_t> state_{kAwake};
  boost::asio::io_context* asio_ = nullptr;  // the rank's, or that of the waker that ended kInAsio
  std::atomic<bool> posted_{false};          // that waker has done with asio_
};

}  // namespace coshard
#pragma GCC visibility pop
