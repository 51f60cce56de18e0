// Ranks that are threads of this process.
#include <numeric>

#include <coshard/runtime/launch/world.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/launch/rank_directory.h"

namespace coshard {
namespace {

class ThreadDirectory final : public RankDirectory {
 public:
  explicit ThreadDirectory(const WorldOptions& options)
      : thread_group_(options.ranks, "world", {options.link, options.progress_threads}),
        here_(static_cast<std::size_t>(options.ranks)) {
    std::iota(here_.begin(), here_.end(), 0);
  }
  int size() const override { return static_cast<int>(here_.size()); }
  const std::vector<int>& here() const override { return here_; }
  ThreadGroup* thread_group() override { return &thread_group_; }
  std::shared_ptr<Communicator> control(int rank) override {
    return thread_group_.communicator(rank);
  }
  void fail(const std::string& cause) override { thread_group_.poison(cause); }
  void on_failure(std::function<void(const std::string&)>) override {}  // no other processes
  bool reports_failure() override { return true; }
  void count_in(DeadlockDetector& deadlock_detector) override {
    thread_group_.count_in(deadlock_detector);
  }
  void leave(int rank) override { thread_group_.leave(rank); }
  void end() override {}
  bool alive(int rank) const override { return !thread_group_.left(rank); }
  std::string last_seen(int rank) const override { return thread_group_.last_seen(rank); }

 private:
  ThreadGroup thread_group_;
  std::vector<int> here_;
};

}  // namespace

std::unique_ptr<RankDirectory> make_thread_directory(const WorldOptions& options) {
  return std::make_unique<ThreadDirectory>(options);
}

}  // namespace coshard
