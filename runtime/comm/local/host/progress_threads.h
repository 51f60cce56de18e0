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

namespace coshard {

class Census;
class LocalGroup;
class Sleeper;
struct CollectiveOp;
struct Message;

class ProgressThreads {
 public:
  explicit ProgressThreads(int threads);
  ~ProgressThreads() { stop(); }
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  // There is work in it now, or will be. Any thread; who offers an op holds a reference to it.
  void offer(std::shared_ptr<LocalGroup> group, CollectiveOp& op);
  void offer(std::shared_ptr<LocalGroup> group, std::shared_ptr<Message> message);
  // Something that an offered op waits for may be over. Any thread.
  void ring() noexcept;
  // Whoever sleeps among them counts there. Before anything is offered; it outlives them.
  void count_in(Census& census);
  // Ends and joins the threads; what is offered later is left alone. Not on one of them.
  void stop() noexcept;

 private:
  class Offered;
  struct Helper {
    ThreadParker parker;
    std::atomic<Sleeper*> sleeper{nullptr};  // null: not counted
    void ring() noexcept;
    std::thread thread;
  };
  using Snapshot = std::vector<std::shared_ptr<Offered>>;

  void add(std::shared_ptr<Offered> offered);
  void run(Helper& helper, const std::string& name);
  bool pass(Snapshot& offered, std::int64_t& wake_ns);

  std::atomic<bool> stopping_{false};  // false -> true; seen by who is rung after it
  std::mutex mutex_;                   // the one below
  Snapshot offered_;                   // in the order in which they came
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace coshard
