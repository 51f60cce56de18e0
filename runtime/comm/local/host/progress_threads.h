#pragma once
// Helper threads that do what ranks in flight have left to do while they compute: "progress 0" and
// so on (WorldOptions::progress_threads). They take part as a waiting rank does, and sleep while
// nothing that was offered can go on. Owned by the registry of a thread group, which stops them before
// the ranks' memory can go; never started unless asked for.
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

class Census;
class LocalGroup;
class RemoteRanks;
class Sleeper;
struct CollectiveOp;
struct Message;

class ProgressThreads {
 public:
  // `remote`: driven while something is in flight; null: all ranks are here.
  // `clock`: of a simulation, which has no threads and calls look() when it is told to.
  explicit ProgressThreads(int threads, std::shared_ptr<RemoteRanks> remote = nullptr,
                           TransferClock* clock = nullptr);
  ~ProgressThreads() { stop(); }
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  // There is work in it now, or will be. Any thread; who offers an op holds a reference to it. With
  // ranks in other processes helpers look at it by themselves, every half millisecond, or millisecond.
  void offer(std::shared_ptr<LocalGroup> group, CollectiveOp& op);
  void offer(std::shared_ptr<LocalGroup> group, std::shared_ptr<Message> message);
  // It is over. Any thread.
  void forget(const CollectiveOp& op);
  // Something that an offered op waits for may be over. Any thread.
  void ring() noexcept;
  // Whoever sleeps among them counts there. Before anything is offered; it outlives them.
  void count_in(Census& census);
  // What one of them does until nothing goes on. When to look again although nobody rings; 0: never.
  std::int64_t look();
  // Ends and joins the threads; what is offered later is left alone. Not on one of them.
  void stop() noexcept;

 private:
  class Offered;
  struct Helper {
    ThreadParker parker;
    std::atomic<Sleeper*> sleeper{nullptr};  // null: not counted
    // Until rung. Sequentially consistent, with the mutex of the others: who offers sees it, or it
    // is seen that there is something.
    std::atomic<bool> asleep{false};
    void ring() noexcept;
    std::thread thread;
  };
  using Snapshot = std::vector<std::shared_ptr<Offered>>;

  void add(std::shared_ptr<Offered> offered, bool rings);
  void run(Helper& helper, const std::string& name);
  void sleep(Helper& helper, std::int64_t wake_ns);
  bool pass(Snapshot& offered, std::int64_t& wake_ns);
  std::int64_t next_poll(bool moved);

  std::shared_ptr<RemoteRanks> remote_;
  TransferClock* clock_;
  std::atomic<bool> stopping_{false};      // false -> true; seen by who is rung after it
  std::atomic<std::int64_t> moved_ns_{0};  // when something of `remote_` did; 0: offered since
  std::mutex mutex_;                       // the one below
  Snapshot offered_;                       // in the order in which they came
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace coshard
