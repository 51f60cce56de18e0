// What a device says of when it ran: collectives and kernels of a rank, by one clock. On a GPU, the
// proof of overlap: their intervals intersect where an operator stands between issue and await, and
// not where it does not.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

bool is_fake() { return !variable("COSHARD_TEST_FAKE", "").empty(); }

class StreamLog final : public Observer {
 public:
  explicit StreamLog(World& world) : world_(world) { world.add_observer(this); }
  ~StreamLog() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    issues.push_back(event.id);
    EXPECT_TRUE(event.queued);
  }
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    EXPECT_EQ(runs.count(event.id), 0U) << "told after the run";
    stalls[event.id] = {begin, end};
  }
  void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    EXPECT_TRUE(runs.emplace(event.id, Interval{begin, end}).second) << "told twice";
  }
  void computed(std::string_view op, ComputeClass, std::int64_t, std::int64_t) override {
    last_ = op;
    ++computed_kernels;
  }
  bool times_kernels() const override { return true; }
  void queued(std::uint64_t kernel) override { names_[kernel] = last_; }
  void kernel_ran(std::uint64_t kernel, std::int64_t begin, std::int64_t end) override {
    kernels.emplace_back(names_.at(kernel), Interval{begin, end});
  }
  void reset() {
    issues.clear();
    runs.clear();
    stalls.clear();
    kernels.clear();
    computed_kernels = 0;
  }

  std::vector<std::uint64_t> issues;
  std::map<std::uint64_t, Interval> runs, stalls;
  std::vector<std::pair<std::string, Interval>> kernels;
  std::size_t computed_kernels = 0;

 private:
  World& world_;
  std::string last_;
  std::map<std::uint64_t, std::string> names_;
};

std::int64_t common_ns(const Interval& a, const Interval& b) {
  return std::max<std::int64_t>(0, std::min(a.second, b.second) - std::max(a.first, b.first));
}

// Products with which the first collective is under way at once, in ns.
std::int64_t under_way_ns(const StreamLog& log) {
  std::int64_t sum = 0;
  for (const auto& [name, time] : log.kernels)
    if (name == "matmul") sum += common_ns(log.runs.at(log.issues.at(0)), time);
  return sum;
}

TEST(DeviceTimes, EveryCollectiveAndKernelIsToldOnceByTheEndOfAHostWait) {
  if (on_cpu()) GTEST_SKIP() << "the cpu queues nothing";
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const NoGradGuard no_grad;
    StreamLog log(world);
    const std::int64_t before = now_ns();
    for (int i = 0; i < 40; ++i) {
      const DTensor x = randn(mesh, Shard(0), Shape{8, 6});
      auto all = x.redistribute(Replicate());
      const DTensor y = mul(x, 2.0);
      co_await std::move(all);
    }
    world.device()->synchronize();
    const std::int64_t after = now_ns();
    EXPECT_EQ(log.issues.size(), 40U);
    EXPECT_EQ(log.runs.size(), 40U);
    EXPECT_EQ(log.stalls.size(), 40U);
    EXPECT_EQ(log.kernels.size(), log.computed_kernels);
    constexpr std::int64_t kNear = 5'000'000;  // half of the clock's longest look
    for (const auto& [id, time] : log.runs) {
      EXPECT_LE(before - kNear, time.first);
      EXPECT_LE(time.first, time.second);
      EXPECT_LE(time.second, after + kNear);
      EXPECT_LE(log.stalls.at(id).first, log.stalls.at(id).second);
    }
    for (const auto& [name, time] : log.kernels) EXPECT_LE(time.first, time.second) << name;
  });
}

TEST(DeviceTimes, BothSidesOfAMessageAreTold) {
  if (on_cpu()) GTEST_SKIP() << "the cpu queues nothing";
  on_ranks(2, [](World& world) -> Task<void> {
    StreamLog log(world);
    const Tensor numbers = zeros(world.device(), Shape{64});
    Collective message;
    message.kind = world.rank() == 0 ? CollectiveKind::Send : CollectiveKind::Recv;
    message.root = 1 - world.rank();
    message.extent = 64;
    message.send = message.recv = numbers.data();
    message.keep_send = message.keep_recv = numbers.storage()->buffer;
    for (int i = 0; i < 3; ++i) world.communicator()->issue(message).wait();
    world.device()->synchronize();
    EXPECT_EQ(log.runs.size(), 3U);
    EXPECT_EQ(log.stalls.size(), 3U);
    co_return;
  });
}

TEST(DeviceTimes, OnAGpuACollectiveRunsUnderAProductThatStandsBeforeItsAwait) {
  if (on_cpu() || is_fake()) GTEST_SKIP() << "the fake driver does not model time";
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const NoGradGuard no_grad;
    const DTensor x = randn(mesh, Shard(0), Shape{32768, 8192}, DType::BF16);
    const Tensor a = randn(world.device(), Shape{4096, 4096}, DType::BF16);
    StreamLog log(world);
    for (const bool between : {true, false, true, false}) {
      world.device()->synchronize();
      log.reset();
      auto all = x.redistribute(Replicate());
      if (!between) co_await std::move(all);
      for (int i = 0; i < 4; ++i) matmul(a, a);
      if (between) co_await std::move(all);
      world.device()->synchronize();
      const Interval run = log.runs.at(log.issues.at(0));
      if (between) {
        EXPECT_GT(under_way_ns(log), (run.second - run.first) / 2);
      } else {
        // An event takes some us from its record to its time.
        EXPECT_LT(under_way_ns(log), (run.second - run.first) / 10) << "the control overlaps";
      }
    }
  });
}

}  // namespace
}  // namespace coshard::testing
