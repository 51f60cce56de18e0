#pragma once
// Helper threads that advance collectives in flight while ranks compute: "progress 0" and so on
// (WorldOptions::progress_threads). They help like a waiting rank, and sleep while no offered op
// can advance. Owned by the registry of a thread group, which stops them before the ranks' memory
// is freed; started only if requested.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/parker.h>
#include "runtime/comm/local/transfer_clock.h"

namespace coshard {

class DeadlockDetector;
class LocalGroup;
class RemoteRanks;
class WaiterState;
struct CollectiveOp;
struct Message;

class ProgressThreads {
 public:
  // `remote`: driven while something is in flight; null: all ranks are here.
  // `clock`: a simulation's, which has no threads and calls poll() when notified.
  explicit ProgressThreads(int threads, std::shared_ptr<RemoteRanks> remote = nullptr,
                           TransferClock* clock = nullptr);
  ~ProgressThreads() { stop(); }
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  // Offers something that has work now, or will have. Any thread; the caller holds a reference to
  // the op. With ranks in other processes, helpers poll it every half millisecond or millisecond.
  void offer(std::shared_ptr<LocalGroup> group, CollectiveOp& op);
  void offer(std::shared_ptr<LocalGroup> group, std::shared_ptr<Message> message);
  // `remote` has something in flight again: helpers poll until it has left. Any thread.
  void poll_remote() noexcept { wake(false); }
  // The op is over. Any thread.
  void forget(const CollectiveOp& op);
  // Something that an offered op waits for may be over. Any thread.
  void wake_all() noexcept;
  // Sleeping helpers count in the deadlock detector. Before anything is offered; the deadlock
  // detector outlives them.
  void count_in(DeadlockDetector& deadlock_detector);
  // Helps until nothing advances. Returns when to look again without a wake-up; 0: never.
  std::int64_t poll();
  // Ends and joins the threads; later offers are ignored. Not on one of them.
  void stop() noexcept;

 private:
  class Offered;
  struct Helper {
    ThreadParker parker;
    std::atomic<WaiterState*> waiter_state{nullptr};  // null: not counted
    // Sleeping until woken. Sequentially consistent, with mutex_ and RemoteRanks::in_flight(): the
    // offering or sending thread sees this, or the helper sees what it has offered or sent.
    std::atomic<bool> asleep{false};
    void wake() noexcept;
    std::thread thread;
  };
  using Snapshot = std::vector<std::shared_ptr<Offered>>;

  void add(std::shared_ptr<Offered> offered, bool wakes);
  void wake(bool all) noexcept;  // else those that sleep until woken
  void run(Helper& helper, const std::string& name);
  void sleep(Helper& helper, std::int64_t wake_ns);
  bool pass(Snapshot& offered, std::int64_t& wake_ns);
  std::int64_t next_poll(bool moved);

  std::shared_ptr<RemoteRanks> remote_;
  TransferClock* clock_;
  std::atomic<bool> stopping_{false};      // false -> true, before a wake-up
  std::atomic<std::int64_t> moved_ns_{0};  // when `remote_` last moved data; 0: offered since
  std::mutex mutex_;                       // guards offered_
  Snapshot offered_;                       // in order of arrival
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace coshard
