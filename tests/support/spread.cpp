#include "tests/support/spread.h"

#include <atomic>
#include <charconv>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/launch/rank_directory.h"
#include "tests/support/fake_mpi.h"

namespace coshard::testing {
namespace {

constexpr int kMostFakeProcesses = 8;

// Settings of this program: main() sets the first two before any test.
bool in_job = false;
int ranks_in_each = 0;     // of fake processes
std::vector<int> claimed;  // hosts of fake processes
int in_threads = 0;        // how many InThreads there are
std::atomic<bool> taken{false};
std::mutex counts_mutex;  // the two below
std::map<int, int> spread_by_ranks;
int not_spread = 0;

class FakeDirectory final : public RankDirectory {
 public:
  explicit FakeDirectory(const WorldOptions& options)
      : processes_(options.ranks, ranks_in_each, 1, "world"),
        here_(static_cast<std::size_t>(options.ranks)) {
    std::iota(here_.begin(), here_.end(), 0);
  }
  ~FakeDirectory() override { taken = false; }
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
  void count_in(DeadlockDetector&) override {}
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

bool fits(const WorldOptions& options) {
  if (options.device != DeviceKind::Cpu || options.link) return false;
  if (in_job) {
    const int all = processes(options).all;
    return all > 1 && options.ranks % all == 0;
  }
  return ranks_in_each > 0 && options.ranks % ranks_in_each == 0 && options.ranks > ranks_in_each &&
         options.ranks / ranks_in_each <= kMostFakeProcesses && !taken.exchange(true);
}

std::unique_ptr<RankDirectory> make_spread(const WorldOptions& options) {
  auto spread = spread_directory(options);
  return spread != nullptr ? std::move(spread) : make_thread_directory(options);
}

}  // namespace

bool over_mpi() { return in_job; }

ClaimedHosts::ClaimedHosts(std::vector<int> of_processes)
    : in_job_(std::exchange(in_job, false)), ranks_in_each_(std::exchange(ranks_in_each, 1)) {
  claimed = std::move(of_processes);
  use_directories(make_spread);
}

ClaimedHosts::~ClaimedHosts() {
  claimed.clear();
  in_job = in_job_;
  ranks_in_each = ranks_in_each_;
  if (!in_job && ranks_in_each == 0) use_directories(nullptr);
}

InThreads::InThreads() { ++in_threads; }
InThreads::~InThreads() { --in_threads; }

std::unique_ptr<RankDirectory> spread_directory(const WorldOptions& options) {
  if (in_threads > 0) return nullptr;
  const bool spread = fits(options);
  {
    const std::scoped_lock lock(counts_mutex);
    ++(spread ? spread_by_ranks[options.ranks] : not_spread);
  }
  if (!spread) return nullptr;
  if (in_job) return make_process_directory(options);
  return std::make_unique<FakeDirectory>(options);
}

void spread_worlds(const std::string& how) {
  in_job = how == "mpi";
  if (!in_job) {
    const auto [end, error] = std::from_chars(how.data(), how.data() + how.size(), ranks_in_each);
    CS_REQUIRE(error == std::errc() && end == how.data() + how.size() && ranks_in_each > 0,
               "COSHARD_TEST_WORLDS=", how, " is neither mpi nor a number of ranks");
  }
  use_directories(make_spread);
}

std::string worlds_that_were_spread() {
  if (!in_job && ranks_in_each == 0) return "";
  const bool alone = in_job && processes({}).all == 1;
  CS_REQUIRE(alone || !spread_by_ranks.empty(), "none of the ", not_spread,
             " worlds was spread over processes");
  std::string text;
  for (const auto& [ranks, worlds] : spread_by_ranks)
    text += str_cat(text.empty() ? "spread " : ", ", worlds, " x ", ranks, " ranks");
  return str_cat(text.empty() ? "spread none" : text, "; in one process ", not_spread);
}

}  // namespace coshard::testing
