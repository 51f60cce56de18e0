// Ranks that are threads of this process.
#include <numeric>

#include <coshard/runtime/launch/world.h>
#include "runtime/comm/local/fabric.h"
#include "runtime/launch/roster.h"

namespace coshard {
namespace {

class ThreadRoster final : public Roster {
 public:
  explicit ThreadRoster(const WorldOptions& options)
      : fabric_(options.ranks, "world", {options.link, options.progress_threads}),
        here_(static_cast<std::size_t>(options.ranks)) {
    std::iota(here_.begin(), here_.end(), 0);
  }
  int size() const override { return static_cast<int>(here_.size()); }
  const std::vector<int>& here() const override { return here_; }
  LocalFabric* fabric() override { return &fabric_; }
  std::shared_ptr<Communicator> control(int rank) override { return fabric_.communicator(rank); }
  void fail(const std::string& cause) override { fabric_.poison(cause); }
  void on_failure(std::function<void(const std::string&)>) override {}  // there is no other process
  void count_in(Census& census) override { fabric_.count_in(census); }
  void leave(int rank) override { fabric_.leave(rank); }
  bool alive(int rank) const override { return !fabric_.left(rank); }
  std::string last_seen(int rank) const override { return fabric_.last_seen(rank); }

 private:
  LocalFabric fabric_;
  std::vector<int> here_;
};

}  // namespace

std::unique_ptr<Roster> make_roster(const WorldOptions& options) {
  return std::make_unique<ThreadRoster>(options);
}

}  // namespace coshard
