#include "runtime/device/sim/representative.h"

#include <numeric>

#include <coshard/runtime/error.h>
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/rank_world.h"

namespace coshard {
namespace {

// Only rank 0 exists; the others are assumed to agree with it.
class RepresentativeDirectory final : public RankDirectory {
 public:
  RepresentativeDirectory(const WorldOptions& options, std::shared_ptr<VirtualNetwork> network)
      : size_(options.ranks), network_(std::move(network)) {
    WorldOptions alone = options;
    alone.ranks = 1;
    one_ = make_thread_directory(alone);
  }
  int size() const override { return size_; }
  const std::vector<int>& here() const override { return one_->here(); }
  ThreadGroup* thread_group() override { return one_->thread_group(); }
  std::shared_ptr<Communicator> control(int rank) override {
    std::vector<int> all(static_cast<std::size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    return std::make_shared<VirtualCommunicator>(network_, std::move(all), rank, "world");
  }
  void fail(const std::string& cause) override { one_->fail(cause); }
  void on_failure(std::function<void(const std::string&)> told) override {
    one_->on_failure(std::move(told));
  }
  bool reports_failure() override { return true; }
  void count_in(DeadlockDetector& deadlock_detector) override { one_->count_in(deadlock_detector); }
  void leave(int rank) override { one_->leave(rank); }
  void end() override { one_->end(); }
  bool alive(int rank) const override { return rank != 0 || one_->alive(rank); }
  std::string last_seen(int) const override { return "is not simulated"; }

 private:
  int size_;
  std::shared_ptr<VirtualNetwork> network_;
  std::unique_ptr<RankDirectory> one_;
};

}  // namespace

void run_representative(int ranks, std::shared_ptr<VirtualDevice> device, LinkOf link_of,
                        const Program& program, bool gathers_by_shards) {
  CS_REQUIRE(ranks >= 1, "run_representative: ranks must be at least 1, got ", ranks);
  CS_REQUIRE(program, "run_representative: the program is an empty function");
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.make_device = [device](int) { return device; };
  const WorldOptions all = settled(options, {});  // ignores this process's launcher
  auto network = std::make_shared<VirtualNetwork>(
      VirtualNetwork{std::move(link_of), device, gathers_by_shards});
  run_ranks_on(*own_threads(), all, std::make_unique<RepresentativeDirectory>(all, network),
               program);
}

}  // namespace coshard
