#include <coshard/profiling/comm_debug.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/parallelize.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Counts = CommDebug::Counts;
using testing::on_ranks;

struct TwoLinears : Module {
  explicit TwoLinears(World& world) : up(4, 8, world), down(8, 4, world) {
    register_module("up", up);
    register_module("down", down);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor hidden = co_await up.forward(x);
    co_return co_await down.forward(relu(hidden));
  }
  nn::Linear up, down;
};

TEST(CommDebug, TellsModulesApartForwardAndBackward) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    TwoLinears model(world);
    ParallelPlan plan;
    plan["up"] = ColwiseParallel{};
    plan["down"] = RowwiseParallel{};
    co_await parallelize_module(model, mesh, plan);
    Tensor x = rand(world.device(), {3, 4});
    x.set_requires_grad(true);
    CommDebug debug(world);
    Tensor y = co_await model.forward(x);
    EXPECT_EQ(debug.counts(), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(debug.counts("down"), (Counts{{"all_reduce", 1}}));
    Tensor loss = sum(y);
    co_await backward(loss);
    // The gradient of the input, which Colwise left as a sum over the ranks.
    EXPECT_EQ(debug.backward_counts(), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(debug.backward_counts("up"), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(debug.backward_counts("down"), Counts{});
    EXPECT_EQ(debug.forward_counts("up"), Counts{});
    EXPECT_EQ(debug.total(), 2);
  });
}

TEST(CommDebug, CountsWhileItLives) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {4});
    {
      CommDebug debug(world);
      x.redistribute(Replicate()).tensor().wait();
      EXPECT_EQ(debug.counts(), (Counts{{"all_gather", 1}}));
      debug.reset();
      EXPECT_EQ(debug.total(), 0);
    }
    EXPECT_FALSE(world.observed());
    co_return;
  });
}

TEST(CollectiveCounter, WritesJson) {
  CollectiveCounter counter;
  counter.module_enter("layers.0");
  counter.module_enter("layers.0.\"q\"");
  CommEvent event;
  event.kind = CollectiveKind::AllReduce;
  event.bytes = 12;
  counter.issued(event, 0);
  counter.backward_enter();
  counter.issued(event, 0);
  const std::string both = R"({"all_reduce":{"forward":1,"backward":1,"bytes":24}})";
  EXPECT_EQ(to_json(counter),
            R"({"all":)" + both + R"(,"modules":{"layers.0.\"q\"":)" + both + "}}");
}

}  // namespace
}  // namespace coshard
