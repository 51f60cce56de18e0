#include <coshard/dtensor/tape/tape.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(Backward, AddsUpOverBranchesAndOverCalls) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    const Tensor y = sum(x * x + x);  // 2x + 1
    Task<void> first = backward(y, {.retain_graph = true});
    co_await std::move(first);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{3, 5, 7}));
    run_backward(y);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{6, 10, 14}));
  });
}

TEST(Backward, RefusesWhatHasNoLeafOrNoSeed) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    EXPECT_THROW(run_backward(sum(x)), Error);
    x.set_requires_grad(true);
    EXPECT_THROW(run_backward(x * 2.0), Error);
    EXPECT_THROW(run_backward(x * 2.0, counting(world, {4})), Error);
    co_return;
  });
}

TEST(Backward, NothingIsRecordedUnderNoGrad) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    const NoGradGuard guard;
    EXPECT_FALSE((x * 2.0).requires_grad());
    co_return;
  });
}

// Records in which order a rank computes and communicates.
class OrderObserver final : public Observer {
 public:
  explicit OrderObserver(World& world) : world_(world) { world.add_observer(this); }
  ~OrderObserver() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    order.push_back(std::string(to_string(event.kind)));
  }
  void ready(const CommEvent&, std::int64_t, std::int64_t, std::int64_t) override {
    order.push_back("ready");
  }
  void computed(std::string_view op, ComputeClass c, std::int64_t, std::int64_t) override {
    if (c == ComputeClass::Gemm) order.push_back(std::string(op));
  }
  std::vector<std::string> order;

 private:
  World& world_;
};

TEST(Backward, IssuesTheInputGradientsCollectiveBeforeItComputesTheWeightGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor local = counting(world, {4, 6});
    local.set_requires_grad(true);
    const DTensor x = from_local(local, mesh, Replicate());
    DTensor weight = distribute_tensor(counting(world, {8, 6}), mesh, Shard(0));
    weight.set_requires_grad(true);
    const DTensor y = linear(x, weight);  // column-wise
    const Tensor h = to_local(y);
    const Tensor before = silu(h);
    OrderObserver seen(world);
    Task<void> walk = backward(before, ones(world.device(), before.shape(), DType::F64));
    co_await std::move(walk);
    local.grad().wait();
    EXPECT_EQ(seen.order.size(), 4u);
    if (seen.order.size() != 4) co_return;
    EXPECT_EQ(seen.order[1], "all_reduce");
    EXPECT_EQ(seen.order[3], "ready");  // the second GEMM lies between issue and ready
  });
}

// The gradient of the sum of the squared gradient of sum(x^3), which is 36 x^3.
TEST(Backward, AGradientCanBeDifferentiatedAgainThroughARedistribute) {
  testing::on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    for (int rows : {1, 2, 3, 5, 7}) {
      const Tensor values = testing::counting(world, {rows, 2}, DType::F64, 0.5);
      DTensor x = distribute_tensor(values, mesh, Shard(0));
      x.set_requires_grad(true);
      const Tensor whole = full_tensor(x);
      const Tensor cubes = sum(mul(whole, mul(whole, whole)));
      co_await backward(cubes, BackwardOptions{.create_graph = true});
      const DTensor gradient = x.grad();
      EXPECT_EQ(full_tensor(gradient.detach()).to_vector(),
                mul(mul(values, values), 3).to_vector());
      x.set_grad(Tensor());
      const DTensor squares = sum(mul(gradient, gradient));
      co_await backward(squares);
      EXPECT_EQ(full_tensor(x.grad()).to_vector(),
                mul(mul(values, mul(values, values)), 36).to_vector());
      x.set_grad(Tensor());
    }
  });
}

TEST(Backward, WhatCannotBeDifferentiatedAgainSaysSo) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor local = testing::counting(world, {2});
    local.set_requires_grad(true);
    const DTensor x = from_local(local, mesh, Partial(Reduce::Product));
    const DTensor loss = sum(x.redistribute(Replicate()).tensor());
    EXPECT_THROW(run_backward(loss, {.create_graph = true}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
