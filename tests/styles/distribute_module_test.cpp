#include <coshard/styles/distribute_module.h>
#include <coshard/styles/fully_shard.h>
#include <coshard/styles/parallelize.h>
#include "styles/path_pattern.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(DistributeModule, WithoutFunctionsReplicatesEveryParameterOnAnyMesh) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    nn::Linear linear(4, 3, world);
    const Tensor mine = linear.weight.detach();
    linear.bias.set_requires_grad(false);
    CountingObserver seen(world);
    distribute_module(linear, mesh);
    EXPECT_EQ(seen.count(CollectiveKind::Broadcast), 4);  // weight and bias, two mesh dimensions
    EXPECT_EQ(linear.weight.layout(), Layout(Replicate(), Replicate()));
    EXPECT_TRUE(linear.weight.requires_grad());
    EXPECT_FALSE(linear.bias.requires_grad());
    EXPECT_EQ(linear.weight.to_vector(), mine.to_vector());

    // The gradient of a replica on replicated data is a replica (as in PyTorch).
    const DTensor x = ones(mesh, Layout(Replicate(), Replicate()), {2, 4});
    const Tensor y = co_await linear.forward(x);
    const Tensor loss = sum(y);
    co_await backward(loss);
    EXPECT_EQ(linear.weight.grad().layout(), Layout(Replicate(), Replicate()));
    EXPECT_EQ(linear.weight.grad().to_vector(), std::vector<double>(12, 2.0));
  });
}

TEST(DistributeModule, SendsNothingWhenEveryRankCutsItsOwn) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Linear linear(4, 3, world);
    ParallelizeOptions own;
    own.src_data_rank = std::nullopt;
    CountingObserver seen(world);
    distribute_module(
        linear, mesh,
        [](const std::string& path, Module& module, const DeviceMesh& on) {
          EXPECT_EQ(path, "");
          Tensor& weight = module.parameter("weight");
          weight = distribute_tensor(weight, on, Shard(1), std::nullopt);
        },
        {}, {}, own);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(linear.weight.layout(), Layout(Shard(1)));
    EXPECT_EQ(linear.bias.layout(), Layout(Replicate()));
    co_return;
  });
}

TEST(DistributeModule, ComesBeforeFullyShard) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1, 2}, {"tp", "dp"});
    nn::Linear linear(4, 3, world);
    fully_shard(linear, mesh["dp"]);
    try {
      distribute_module(linear, mesh["tp"]);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("then fully_shard"), std::string::npos);
    }
    co_return;
  });
}

TEST(ParallelizeModule, TakesTheDefaultMesh) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DefaultMesh scope(line(world));
    nn::Linear linear(4, 3, world);
    ParallelPlan plan{ColwiseParallel{}};
    co_await parallelize_module(linear, plan);
    EXPECT_EQ(linear.weight.layout(), Layout(Shard(0)));
  });
}

TEST(DistributeModule, ReplicatesWhatThePartitionLeavesAndHangsTheHooks) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    auto [plain, model] = twins<Mlp>(world);
    model->net2.bias.set_requires_grad(false);
    const PartitionFn partition = [](const std::string& path, Module& module,
                                     const DeviceMesh& on) {
      if (path != "net1") return;
      auto& linear = dynamic_cast<nn::Linear&>(module);
      linear.weight = distribute_tensor(linear.weight, on, Shard(0));
    };
    const InputFn input = [](Module&, Inputs& in, const DeviceMesh& on) {
      in.args[0] = from_local(in.args[0], on, Replicate());
    };
    const OutputFn output = [](Module&, Outputs& out, const DeviceMesh&) {
      out[0] = out[0].redistribute(Replicate()).tensor();
    };
    distribute_module(*model, mesh, partition, input, output);
    EXPECT_EQ(model->net1.weight.layout(), Layout(Shard(0)));
    EXPECT_EQ(model->net2.weight.layout(), Layout(Replicate()));
    EXPECT_TRUE(model->net2.weight.requires_grad());
    EXPECT_FALSE(model->net2.bias.requires_grad());
    const Tensor x = random(world, Shape{4, 10});
    const Tensor y = co_await model->forward(x);
    const Tensor want = co_await plain->forward(x);
    expect_close(y, want);
  });
}

}  // namespace
}  // namespace coshard::testing
