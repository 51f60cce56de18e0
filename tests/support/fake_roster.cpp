#include "tests/support/fake_roster.h"

#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include <coshard/runtime/launch/world.h>
#include "runtime/launch/roster.h"
#include "tests/support/fake_mpi.h"

namespace coshard::testing {
namespace {

int ranks_in_each = 0;
std::vector<int> claimed;  // hosts of the processes
std::atomic<bool> taken{false};
std::atomic<std::uint64_t> worlds{0};

class FakeRoster final : public Roster {
 public:
  explicit FakeRoster(const WorldOptions& options)
      : processes_(options.ranks, ranks_in_each, ++worlds, "world"),
        here_(static_cast<std::size_t>(options.ranks)) {
    std::iota(here_.begin(), here_.end(), 0);
  }
  ~FakeRoster() override { taken = false; }
  int size() const override { return static_cast<int>(here_.size()); }
  const std::vector<int>& here() const override { return here_; }
  ThreadGroup* thread_group() override { return &processes_.group_of(0); }
  std::shared_ptr<Communicator> control(int rank) override {
    return processes_.group_of(rank).communicator(rank);
  }
  void fail(const std::string& cause) override {
    for (int rank = 0; rank < size(); rank += ranks_in_each)
      processes_.group_of(rank).poison(cause);
  }
  void on_failure(std::function<void(const std::string&)>) override {}
  bool reports_failure() override { return true; }
  void count_in(Census&) override {}
  void leave(int rank) override { processes_.leave(rank); }
  void end() override {}
  bool alive(int rank) const override { return !processes_.group_of(rank).left(rank); }
  std::string last_seen(int rank) const override {
    return processes_.group_of(rank).last_seen(rank);
  }
  std::vector<int> hosts() const override { return claimed; }

 private:
  mutable FakeProcesses processes_;
  std::vector<int> here_;
};

std::unique_ptr<Roster> spread(const WorldOptions& options) {
  const int processes = options.ranks % ranks_in_each == 0 ? options.ranks / ranks_in_each : 1;
  const bool fits = processes > 1 && processes <= 8 && options.device == DeviceKind::Cpu &&
                    !options.link && !taken.exchange(true);
  if (!fits) return make_thread_roster(options);
  return std::make_unique<FakeRoster>(options);
}

}  // namespace

void spread_worlds(int per_process) {
  ranks_in_each = per_process;
  use_rosters(spread);
}

ClaimedHosts::ClaimedHosts(std::vector<int> of_processes) : before_(ranks_in_each) {
  claimed = std::move(of_processes);
  spread_worlds(1);
}

ClaimedHosts::~ClaimedHosts() {
  claimed.clear();
  ranks_in_each = before_;
  if (before_ == 0) use_rosters(nullptr);
}

}  // namespace coshard::testing
