// Gradients of a group of sharded parameters: hooks, and what cannot be reduced.
#include <coshard/runtime/coro/when_all.h>
#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

TEST(ShardGradients, RefusesTwoBackwardsAtOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world);
    shard_layers(model, dp_line(world), {});
    std::vector<Task<void>> walks;
    for (int time = 0; time < 2; ++time) {
      const Tensor y = co_await model.forward(rows_of(world, time, 0));
      walks.push_back(backward(mean(mul(y, y))));
    }
    const std::string text = co_await error_of(when_all(std::move(walks)));
    EXPECT_CONTAINS(text, "another backward is still reducing gradients of");
  });
}

TEST(ShardGradients, RunsHooksOfShardsAndRefusesThoseThatReplaceGradients) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world, 1);
    shard_layers(model, dp_line(world), {});
    int calls = 0;
    register_post_accumulate_grad_hook(model.scale, [&](const Tensor& shard) {
      EXPECT_TRUE(shard.grad().defined());
      ++calls;
    });
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    co_await backward(mean(mul(y, y)));
    EXPECT_EQ(calls, 1);
    register_hook(model.scale, [](const Tensor& gradient) { return gradient; });
    const Tensor again = co_await model.forward(rows_of(world, 0, 0));
    const std::string text = co_await error_of(backward(mean(mul(again, again))));
    EXPECT_CONTAINS(text, "'scale', which fully_shard has sharded");
  });
}

// A linear layer and a plain parameter beside it, which is a replica on its input's mesh: its
// gradient is a partial sum there, which is reduced in backward and arrives last.
struct Scaled : Module {
  explicit Scaled(World& world)
      : linear(4, 4, world, {.dtype = DType::F64, .init_std = 0.5}),
        scale(ones(world.device(), {4}, DType::F64).set_requires_grad(true)) {
    register_module("linear", linear);
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override {
    const ImplicitReplication scope;
    co_return mul(coshard::linear(x, linear.weight, linear.bias), scale);
  }
  nn::Linear linear;
  Tensor scale;
};

std::vector<std::vector<double>> gradients_of(Module& module) {
  std::vector<std::vector<double>> all;
  for (const Tensor& p : module.parameters()) {
    const Tensor gradient = p.grad();
    if (!gradient.defined()) {
      all.emplace_back();
      continue;
    }
    const Tensor own = gradient.detach();
    all.push_back((own.is_distributed() ? full_tensor(own) : own).to_vector());
  }
  return all;
}

void expect_same_gradients(Module& got, Module& want) {
  const auto a = gradients_of(got), b = gradients_of(want);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t p = 0; p < a.size(); ++p) {
    EXPECT_FALSE(b[p].empty()) << p;
    expect_all_near(a[p], b[p]);
  }
}

TEST(ShardGradients, AreReducedAlsoWhenOneOfThemArrivesAtTheEnd) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "cp"});
    manual_seed(1);
    Scaled replica(world);
    manual_seed(1);
    Scaled sharded(world);
    const DataParallel replicas(replica.parameters(), mesh, 0);
    fully_shard(sharded, mesh["dp"]);
    for (int step = 0; step < 3; ++step) {
      manual_seed(static_cast<std::uint64_t>(10 + mesh.local_rank("dp")));
      const Tensor rows = random(world, Shape{8, 4});
      const Tensor x = step == 1 ? rows : distribute_tensor(rows, mesh["cp"], Shard(0));
      for (Module* model : {static_cast<Module*>(&replica), static_cast<Module*>(&sharded)}) {
        model->zero_grad();
        const Tensor y = co_await model->forward(x);
        co_await backward(mean(mul(y, y)));
      }
      expect_same_gradients(sharded, replica);
    }
  });
}

// The critic is frozen for the generator's step, between its own forward and backward.
TEST(ShardGradients, FollowRequiresGradAsItIsInBackward) {
  on_ranks(2, [](World& world) -> Task<void> {
    manual_seed(1);
    Mlp plain(world);
    manual_seed(1);
    Mlp sharded(world);
    fully_shard(sharded, dp_line(world));
    manual_seed(2);
    const Tensor real = random(world, Shape{2, 10});
    Tensor fake = random(world, Shape{2, 10});
    fake.set_requires_grad(true);
    for (Module* critic : {static_cast<Module*>(&plain), static_cast<Module*>(&sharded)}) {
      const Tensor y = co_await critic->forward(real);
      for (Tensor& p : critic->parameters()) p.set_requires_grad(false);
      const Tensor judged = co_await critic->forward(fake);
      co_await backward(mean(judged));
      for (const Tensor& p : critic->parameters()) EXPECT_FALSE(p.grad().defined());
      for (Tensor& p : critic->parameters()) p.set_requires_grad(true);
      co_await backward(mean(mul(y, y)));
    }
    expect_same_gradients(sharded, plain);
    const Tensor y = co_await sharded.forward(real);
    sharded.zero_grad();
    for (Tensor& p : sharded.parameters()) p.set_requires_grad(false);
    co_await backward(sum(add(mean(y), mean(fake))));
    for (const Tensor& p : sharded.parameters()) EXPECT_FALSE(p.grad().defined());
  });
}

TEST(ShardGradients, AreNoneOfWhatIsFrozenBeforeTheFirstForward) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp model(world);
    fully_shard(model, dp_line(world));
    model.net1.weight.set_requires_grad(false);
    for (int step = 0; step < 2; ++step) {
      const Tensor y = co_await model.forward(rows_of(world, step, 0));
      co_await backward(mean(mul(y, y)));
      EXPECT_FALSE(model.net1.weight.requires_grad());
      EXPECT_FALSE(model.net1.weight.grad().defined());
      EXPECT_TRUE(model.net2.weight.grad().defined());
    }
  });
}

struct Unfreezes : Module {
  explicit Unfreezes(World& world) : mlp(world) { register_module("mlp", mlp); }
  Task<Tensor> run(Tensor x) override {
    mlp.net1.weight.set_requires_grad(true);
    Tensor y = co_await mlp.forward(std::move(x));
    co_return y;
  }
  Mlp mlp;
};

TEST(ShardGradients, FollowRequiresGradThatTheForwardItselfSets) {
  on_ranks(2, [](World& world) -> Task<void> {
    Unfreezes model(world);
    model.mlp.net1.weight.set_requires_grad(false);
    fully_shard(model, dp_line(world));
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const Tensor y = co_await model.forward(rows_of(world, step, 0));
      co_await backward(mean(mul(y, y)));
      EXPECT_TRUE(model.mlp.net1.weight.grad().defined());
      EXPECT_TRUE(model.mlp.net1.weight.requires_grad());
    }
  });
}

TEST(ShardGradients, OfWhatWasFrozenInForwardAndIsNotInItsRecomputationAreAnError) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world, 2);
    model.layers[1].set_recompute();
    shard_layers(model, dp_line(world), {});
    for (Tensor& p : model.layers[1].parameters()) p.set_requires_grad(false);
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    for (Tensor& p : model.layers[1].parameters()) p.set_requires_grad(true);
    const std::string text = co_await error_of(backward(mean(mul(y, y))));
    EXPECT_CONTAINS(text, "required none in forward, came from its recomputation");
  });
}

// A norm whose gradient is a partial sum on tp, and a penalty on its weight, replicated there:
// whichever comes first.
TEST(ShardGradients, OfAPenaltyAddUpWithPartialSums) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    std::vector<std::vector<double>> want;
    for (const bool shards : {false, true}) {
      for (const bool penalty_first : {false, true}) {
        manual_seed(1);
        nn::LayerNorm norm(6, world, {.dtype = DType::F64});
        co_await parallelize_module(norm, mesh["tp"], SequenceParallel{.sequence_dim = 0});
        if (shards) fully_shard(norm, mesh["dp"]);
        const Tensor x = distribute_tensor(random(world, Shape{8, 6}), mesh["tp"], Shard(0));
        const auto penalty = [&norm] { return full_tensor(sum(mul(norm.weight, norm.weight))); };
        Tensor term;
        if (penalty_first) term = penalty();
        const Tensor y = co_await norm.forward(x);
        if (!penalty_first) term = penalty();
        co_await backward(add(full_tensor(mean(exp(y))), term));
        if (!shards && !penalty_first) want = gradients_of(norm);
        const auto got = gradients_of(norm);
        EXPECT_EQ(got.size(), want.size());
        for (std::size_t p = 0; p < want.size(); ++p) expect_all_near(got[p], want[p]);
      }
    }
  });
}

TEST(GroupsOfShards, TellRanksApartThatMissDifferentGradients) {
  std::string texts[2];
  WorldOptions options = test_options(2);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "fails a world";
  try {
    run_ranks(options, [](World& world) -> Task<void> {
      Layers model(world);
      fully_shard(model, dp_line(world));
      model.scale.set_requires_grad(world.rank() == 1);
      const Tensor y = co_await model.forward(rows_of(world, 0, 0));
      co_await backward(mean(mul(y, y)));
      co_await discard(model.forward(rows_of(world, 0, 0)));
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    EXPECT_CONTAINS(std::string(error.what()), "reduced a group of shards with no gradient for");
  }
}

}  // namespace
}  // namespace coshard::testing
