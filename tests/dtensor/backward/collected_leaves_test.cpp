#include "dtensor/backward/collected_leaves.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/hooks.h>
#include "dtensor/backward/backward_pass.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

// Keeps gradients as they are and notes what it is told.
struct Collector final : GradCollector {
  bool begin(std::span<const int> reached) override {
    told.push_back(str_cat("begin", reached.size()));
    for (const int i : reached) told.push_back(str_cat("reached ", i));
    return collects;
  }
  Tensor place(const GradMeta&) override { return offered; }
  void add(GradMeta& leaf, Tensor gradient) override {
    leaf.gradient = leaf.gradient.defined() ? coshard::add(leaf.gradient, gradient) : gradient;
    told.push_back(str_cat("add ", leaf.collected_as));
  }
  void complete(int leaf) override { told.push_back(str_cat("complete ", leaf)); }
  void end() override { told.emplace_back("end"); }
  void give_up() noexcept override { told.emplace_back("given up"); }
  bool collects = true;
  Tensor offered;
  std::vector<std::string> told;
  CollectorHere here{*this};
};

std::vector<Tensor> leaves_of(World& world, const std::shared_ptr<Collector>& collector) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 3; ++i) {
    leaves.push_back(counting(world, {2, 2}));
    leaves.back().set_requires_grad(true);
    leaves.back().grad_meta()->collector = collector;
    leaves.back().grad_meta()->collected_as = i;
  }
  return leaves;
}

// 1 is complete once its older use is over; 2 is not reached.
Tensor loss_of(const std::vector<Tensor>& w) {
  const Tensor y = matmul(matmul(w[1], w[0]), w[1]);
  return sum(y);
}

TEST(CollectedLeaves, AreCompleteOnceTheOldestRecordThatReadsThemHasRun) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto collector = std::make_shared<Collector>();
    const std::vector<Tensor> w = leaves_of(world, collector);
    const Tensor y = matmul(w[0], w[1]);
    const Tensor loss = sum(matmul(y, w[0]));
    co_await backward(loss);
    EXPECT_EQ(collector->told,
              (std::vector<std::string>{"begin2", "reached 0", "reached 1", "add 0", "add 0",
                                        "add 1", "complete 0", "complete 1", "end"}));
    EXPECT_FALSE(w[2].grad().defined());
  });
}

TEST(CollectedLeaves, AreToldAsSoonAsNoRecordToComeReadsThem) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto collector = std::make_shared<Collector>();
    const std::vector<Tensor> w = leaves_of(world, collector);
    const Tensor y = relu(matmul(relu(matmul(counting(world, {2, 2}), w[0])), w[1]));
    const Tensor loss = sum(matmul(y, w[2]));
    co_await backward(loss);
    EXPECT_EQ(collector->told,
              (std::vector<std::string>{"begin3", "reached 2", "reached 1", "reached 0", "add 2",
                                        "complete 2", "add 1", "complete 1", "add 0", "complete 0",
                                        "end"}));
  });
}

TEST(CollectedLeaves, AreComputedWhereTheirCollectorWantsThem) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto collector = std::make_shared<Collector>();
    const std::vector<Tensor> w = leaves_of(world, collector);
    const Tensor x = counting(world, {3, 2});
    collector->offered = counting(world, {2, 2});
    run_backward(sum(linear(x, w[0])));
    EXPECT_EQ(w[0].grad().data(), collector->offered.data());
    EXPECT_EQ(collector->offered.to_vector(), (std::vector<double>{9, 12, 9, 12}));
    // Not what grad() returns, and not beside a hook, which sees the gradient first.
    const std::vector<Tensor> found = run_grad({sum(linear(x, w[1]))}, {w[1]});
    EXPECT_NE(found[0].storage()->buffer, collector->offered.storage()->buffer);
    register_hook(w[2], [](const Tensor&) { return Tensor(); });
    run_backward(sum(linear(x, w[2])));
    EXPECT_NE(w[2].grad().storage()->buffer, collector->offered.storage()->buffer);
    co_return;
  });
}

TEST(CollectedLeaves, AreGivenUpIfBackwardFails) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto collector = std::make_shared<Collector>();
    const std::vector<Tensor> w = leaves_of(world, collector);
    const Tensor square = mul(w[0], w[0]);
    const Tensor saved = mul(square, w[1]);
    const Tensor loss = sum(saved);
    square.mark_written();  // backward needs what it held
    EXPECT_THROW(run_backward(loss), Error);
    EXPECT_EQ(collector->told.back(), "given up");
    co_return;
  });
}

TEST(CollectedLeaves, AreNotLookedForByGradOrWhereNobodyCollects) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto collector = std::make_shared<Collector>();
    const std::vector<Tensor> w = leaves_of(world, collector);
    const std::vector<Tensor> found = run_grad({loss_of(w)}, {w[0]});
    EXPECT_TRUE(found[0].defined());
    EXPECT_TRUE(collector->told.empty());
    collector->collects = false;
    run_backward(loss_of(w));
    EXPECT_EQ(collector->told, (std::vector<std::string>{"begin2", "reached 1", "reached 0",
                                                         "add 1", "add 1", "add 0"}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
