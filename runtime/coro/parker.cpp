#include <coshard/runtime/coro/parker.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

namespace coshard {

namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// Sleeps while `word` holds `value`; false when the deadline has passed. The steady clock is
// CLOCK_MONOTONIC, which FUTEX_WAIT_BITSET uses for its deadline.
bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t deadline_ns) {
  timespec until{};
  until.tv_sec = deadline_ns / kNanosecondsPerSecond;
  until.tv_nsec = deadline_ns % kNanosecondsPerSecond;
  const long result =
      ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value,
                deadline_ns != 0 ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 || errno != ETIMEDOUT;
}

}  // namespace

std::int64_t ThreadParker::now() const {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

void ThreadParker::unpark() noexcept {
  // Release: earlier writes are visible to the rank that reads kUnparked. Acquire: asio_, and
  // posted_ as false, are as the rank wrote them before kInAsio.
  const std::uint32_t before = state_.exchange(kUnparked, std::memory_order_acq_rel);
  if (before == kOnFutex) {
    // The rank may already be running, and this parker destroyed: the kernel only compares
    // addresses.
    ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1);
  } else if (before == kInAsio) {
    boost::asio::post(*asio_, [] {});
    // Release: the post happens before the rank, which waits for this, releases asio_.
    posted_.store(true, std::memory_order_release);
  }
}

bool ThreadParker::fall_asleep(State how) {
  std::uint32_t awake = kAwake;
  // Release: a waker that reads kInAsio sees asio_, and posted_ as false. If it was already woken,
  // nothing is read here; the exchange that takes the token acquires.
  return state_.compare_exchange_strong(awake, how, std::memory_order_release,
                                        std::memory_order_relaxed);
}

void ThreadParker::park(std::int64_t deadline_ns, boost::asio::io_context* asio) {
  asio_ = asio;  // not read concurrently: the state is kAwake or kUnparked
  if (fall_asleep(asio != nullptr ? kInAsio : kOnFutex)) {
    if (asio != nullptr) return sleep_in_asio(deadline_ns);
    sleep_on_futex(deadline_ns);
  }
  // Acquire: pairs with the unpark() whose token this takes.
  state_.exchange(kAwake, std::memory_order_acquire);
}

void ThreadParker::sleep_on_futex(std::int64_t deadline_ns) {
  if (deadline_ns < 0) return;  // long past; invalid for the kernel
  // Relaxed: the exchange in park() acquires. The kernel compares the word under a lock that the
  // wake also takes, so that no wake-up is lost in between.
  while (state_.load(std::memory_order_relaxed) == kOnFutex) {
    if (!futex_wait(state_, kOnFutex, deadline_ns)) return;
  }
}

void ThreadParker::sleep_in_asio(std::int64_t deadline_ns) {
  struct Leave {
    ThreadParker& parker;
    ~Leave() { parker.leave_asio(); }
  };
  const Leave leave{*this};  // also when a handler throws
  if (asio_->stopped()) asio_->restart();
  if (deadline_ns == 0) {
    asio_->run_one();
  } else if (deadline_ns <= now()) {
    asio_->poll_one();
  } else {
    const std::chrono::nanoseconds since(deadline_ns);
    asio_->run_one_until(std::chrono::steady_clock::time_point(since));
  }
}

void ThreadParker::leave_asio() noexcept {
  // Acquire: as in park().
  if (state_.exchange(kAwake, std::memory_order_acquire) == kInAsio) return;
  // One waker has read kInAsio and may still be using asio_, which the caller may destroy; it has
  // only its post() left to do. Acquire: that post has happened.
  while (!posted_.load(std::memory_order_acquire)) std::this_thread::yield();
  // Relaxed: fall_asleep() releases it before another waker can read kInAsio.
  posted_.store(false, std::memory_order_relaxed);
}

}  // namespace coshard
