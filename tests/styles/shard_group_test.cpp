// What a group of sharded parameters holds, and what is left when something goes wrong.
#include <algorithm>

#include <coshard/runtime/coro/when_all.h>
#include "tests/styles/sharded_layers.h"
#include "tests/support/hidden_products.h"

namespace coshard::testing {
namespace {

// Keeps what it has computed in between, off its outputs.
struct Aside : Mlp {
  using Mlp::Mlp;
  Task<Tensor> run(Tensor x) override {
    kept = co_await net1.forward(x);
    kept = mul(kept, kept);
    co_return co_await net2.forward(relu(kept));
  }
  Tensor kept;
};

TEST(ShardGroup, GathersAgainForABackwardThatDoesNotPassTheOutputs) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Aside>(world);
    fully_shard(*sharded, dp_line(world));
    Tensor x = rows_of(world, 0, 0).set_requires_grad(true);
    co_await discard(plain->forward(x));
    co_await backward(sum(plain->kept));
    const Tensor want = x.grad();
    x.set_grad({});
    co_await discard(sharded->forward(x));
    co_await backward(sum(sharded->kept));
    expect_close(x.grad(), want);
  });
}

// Not gathered again for a forward under a NoGradGuard, unless the optimizer has stepped.
TEST(ShardGroup, KeepsWhatItNeedNotGatherAgain) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world);
    shard_layers(model, dp_line(world), {.reshard_after_forward = false});
    SGD optimizer(model.parameters(), {.lr = 0.1});
    const Tensor x = rows_of(world, 0, 0);
    CountingObserver counter(world);
    const NoGradGuard no_grad;
    co_await discard(model.forward(x));
    EXPECT_EQ(take(counter), (Issued{.all_gather = 4}));
    const Tensor before = co_await model.forward(x);
    EXPECT_EQ(take(counter), Issued());
    for (const Tensor& p : model.parameters())
      p.set_grad(ones(p.mesh(), p.layout(), p.shape(), p.dtype()));
    co_await optimizer.step();
    take(counter);
    const Tensor after = co_await model.forward(x);
    EXPECT_EQ(take(counter), (Issued{.all_gather = 4}));
    EXPECT_NE(after.to_vector(), before.to_vector());
  });
}

// --- memory ---

class MostMemory final : public Observer {
 public:
  explicit MostMemory(World& world) : world_(world) { world.add_observer(this); }
  ~MostMemory() override { world_.remove_observer(this); }
  void computing(std::string_view, ComputeClass, const DescribeInputs&) override { look(); }
  void look() { most = std::max(most, world_.device()->memory().in_use); }
  std::size_t most = 0;

 private:
  World& world_;
};

constexpr std::size_t kLayerBytes = 2 * 128 * 128 * sizeof(double);

// The most that a step takes beyond what lies there before it, and what it leaves apart from
// gradients.
struct StepBytes {
  std::size_t most = 0, left = 0;
};
enum class Frozen { Nothing, LayersAfterTheFirst, Weights, AllButTheInput };
void freeze(Layers& model, Frozen what) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool all =
        what == Frozen::AllButTheInput || (what == Frozen::LayersAfterTheFirst && i > 0);
    for (Tensor p : model.layers[i].parameters())
      if (all || (what == Frozen::Weights && p.ndim() == 2)) p.set_requires_grad(false);
  }
  if (what == Frozen::AllButTheInput) model.scale.set_requires_grad(false);
}

Task<StepBytes> bytes_of_step(World& world, std::int64_t layers, bool reshard, bool recorded,
                              Frozen frozen = Frozen::Nothing, bool recomputes = false) {
  Layers model(world, layers, 128, 128);
  freeze(model, frozen);
  shard_layers(model, dp_line(world), {.reshard_after_forward = reshard});
  for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].set_recompute(recomputes);
  Tensor x = random(world, Shape{1, 128});
  x.set_requires_grad(frozen == Frozen::AllButTheInput);
  StepBytes bytes;
  for (int time = 0; time < 2; ++time) {
    model.zero_grad();
    MostMemory memory(world);
    const std::size_t before = world.device()->memory().in_use;
    set_grad_enabled(recorded);
    Tensor y = co_await model.forward(x);
    if (recorded) co_await backward(mean(mul(y, y)));
    set_grad_enabled(true);
    memory.look();
    if (time == 0) bytes.most = memory.most - before;  // later ones find what the first has kept
    std::vector<Tensor> gradients;
    for (const Tensor& p : model.parameters()) gradients.push_back(p.grad());
    Task<void> arrived = arrival_of(std::move(gradients));
    co_await std::move(arrived);
    model.zero_grad();
    y = Tensor();
    full_tensor(ones(dp_line(world), Shard(0), Shape{4}));  // peers are done with this rank's
    bytes.left = world.device()->memory().in_use - before;
  }
  co_return bytes;
}

TEST(ShardGroup, HoldsFewWholeLayersAtATime) {
  on_slow_ranks(4, [](World& world) -> Task<void> {
    for (const bool recorded : {false, true}) {
      const StepBytes four = co_await bytes_of_step(world, 4, true, recorded);
      const StepBytes twelve = co_await bytes_of_step(world, 12, true, recorded);
      // Eight layers more: their gradients, a quarter of each, and activations.
      EXPECT_LE(twelve.most, four.most + 3 * kLayerBytes) << recorded;
      EXPECT_LE(four.most, 6 * kLayerBytes);
      EXPECT_LE(twelve.left, kLayerBytes / 2);
      const StepBytes kept = co_await bytes_of_step(world, 12, false, recorded);
      EXPECT_GE(kept.most, 12 * kLayerBytes);  // the control
      if (!recorded) continue;
      EXPECT_LE(kept.left, kLayerBytes / 2);
    }
  });
}

// Backward needs whole weights for the gradients of inputs, also of layers that get none.
TEST(ShardGroup, HoldsFewWholeLayersAtATimeWhereSomeAreFrozen) {
  on_slow_ranks(4, [](World& world) -> Task<void> {
    for (const Frozen frozen :
         {Frozen::LayersAfterTheFirst, Frozen::Weights, Frozen::AllButTheInput})
      for (const bool recomputes : {false, true}) {
        const auto bytes = [&](std::int64_t layers, bool reshard) {
          return bytes_of_step(world, layers, reshard, true, frozen, recomputes);
        };
        const StepBytes four = co_await bytes(4, true), twelve = co_await bytes(12, true);
        EXPECT_LE(twelve.most, four.most + kLayerBytes) << static_cast<int>(frozen) << recomputes;
        EXPECT_LE(four.most, 5 * kLayerBytes) << static_cast<int>(frozen) << recomputes;
        EXPECT_LE(twelve.left, kLayerBytes / 2) << static_cast<int>(frozen) << recomputes;
        const StepBytes kept = co_await bytes(12, false);
        EXPECT_GE(kept.most, 12 * kLayerBytes);  // the control
        EXPECT_LE(kept.left, kLayerBytes / 2) << static_cast<int>(frozen) << recomputes;
      }
  });
}

// What is trained of a layer may be complete before the gradient of the layer's input is.
TEST(ShardGroup, GathersOnceForABackwardThatTrainsOnlyBiases) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool recomputes : {false, true}) {
      Layers model(world);
      freeze(model, Frozen::Weights);
      shard_layers(model, dp_line(world), {});
      for (std::size_t i = 0; i < model.layers.size(); ++i)
        model.layers[i].set_recompute(recomputes);
      for (int time = 0; time < 2; ++time) {
        const Counted run = co_await run_counted(world, model, rows_of(world, 0, 0));
        EXPECT_EQ(run.backward, (Issued{.all_gather = 4, .reduce_scatter = 4}));
      }
    }
  });
}

// The bytes of each reduction of gradients.
class ReducedBytes final : public Observer {
 public:
  explicit ReducedBytes(World& world) : world_(world) { world.add_observer(this); }
  ~ReducedBytes() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    if (event.kind == CollectiveKind::ReduceScatter) all.push_back(event.bytes);
  }
  std::vector<std::int64_t> all;

 private:
  World& world_;
};

// Weights are frozen after the first step, and thawed after the second.
TEST(ShardGroup, ReducesOnlyGradientsThatAreWanted) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Layers>(world);
    shard_layers(*sharded, dp_line(world), {});
    const DataParallel replicas(plain->parameters(), dp_line(world), 0);
    std::vector<std::vector<std::int64_t>> bytes;
    for (int step = 0; step < 3; ++step) {
      for (Layers* model : {plain.get(), sharded.get()}) {
        model->zero_grad();
        for (Tensor p : model->parameters()) p.set_requires_grad(step != 1 || p.ndim() == 1);
      }
      const ReducedBytes reduced(world);
      for (Layers* model : {plain.get(), sharded.get()}) {
        const Tensor y = co_await model->forward(rows_of(world, step, 0));
        co_await backward(mean(mul(y, y)));
      }
      bytes.push_back(reduced.all);
      const auto want = plain->named_parameters(), got = sharded->named_parameters();
      for (std::size_t i = 0; i < want.size(); ++i) {
        const Tensor gradient = want[i].slot->grad();
        EXPECT_EQ(got[i].slot->grad().defined(), gradient.defined()) << want[i].name;
        if (gradient.defined()) expect_close(got[i].slot->grad(), gradient);
      }
    }
    EXPECT_EQ(bytes[0].size(), 4U);
    EXPECT_EQ(bytes[0], bytes[2]);
    for (std::size_t i = 1; i < 4; ++i)  // layers: 10 -> 7 -> 10, and the biases
      EXPECT_EQ(bytes[1][i] * (2 * 7 * 10 + 17), bytes[0][i] * 17);
  });
}

// --- what goes wrong ---

TEST(ShardGroup, RefusesABackwardThroughParametersThatHaveChanged) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool recomputes : {false, true}) {
      Mlp model(world);
      fully_shard(model, dp_line(world));
      model.set_recompute(recomputes);
      const Tensor x = rows_of(world, 0, 0);
      const Tensor y = co_await model.forward(x);
      {
        const NoGradGuard no_grad;
        for (const Tensor& p : model.parameters()) mul_(p, 2);
      }
      std::string text = co_await error_of(backward(mean(mul(y, y))));
      EXPECT_CONTAINS(text, "was changed in place since");
      const Tensor again = co_await model.forward(x);  // and is as it was
      co_await backward(mean(mul(again, again)));
    }
  });
}

struct FailsOnce : Layers {
  using Layers::Layers;
  Task<Tensor> run(Tensor x) override {
    x = co_await layers[0].forward(x);
    if (std::exchange(fails, false)) x = reshape(x, Shape{7, 7});
    co_return co_await layers[1].forward(x);
  }
  bool fails = true;
};

TEST(ShardGroup, CanBeUsedAgainAfterAForwardHasFailed) {
  on_ranks(2, [](World& world) -> Task<void> {
    FailsOnce model(world, 2);
    shard_layers(model, dp_line(world), {});
    const std::size_t before = world.device()->memory().in_use;
    const Tensor x = rows_of(world, 0, 0);
    const std::string text = co_await error_of(discard(model.forward(x)));
    EXPECT_CONTAINS(text, "[7,7]");
    for (const Tensor& p : model.parameters()) EXPECT_TRUE(p.is_distributed());
    EXPECT_LE(world.device()->memory().in_use, before + 4096);
    const Tensor y = co_await model.forward(x);
    co_await backward(mean(mul(y, y)));
    EXPECT_EQ(model.layers[1].net1.weight.grad().layout(), Layout(Shard(0)));
  });
}

struct FailsInSecondPart : Layers {
  using Layers::Layers;
  Task<Tensor> run(Tensor x) override {
    const bool fails = ++calls == 2;
    x = co_await layers[0].forward(x);
    if (fails) x = reshape(x, Shape{7, 7});
    co_return co_await layers[1].forward(x);
  }
  int calls = 0;
};

// The other part is cancelled wherever it is.
TEST(ShardGroup, CanBeUsedAgainAfterAPartOfAWovenForwardHasFailed) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool runs_before : {false, true}) {
      const auto [plain, sharded] = twins<FailsInSecondPart>(world, 2);
      shard_layers(*sharded, dp_line(world), {});
      const Tensor x = rows_of(world, 0, 0);
      if (runs_before) {
        co_await discard(sharded->forward(x));
        sharded->calls = 0;
      }
      const std::string text = co_await error_of(discard(woven(*sharded).forward(x)));
      EXPECT_CONTAINS(text, "[7,7]");
      const Tensor want = co_await plain->forward(x);
      const Tensor got = co_await woven(*sharded).forward(x);
      expect_close(got, want);
    }
  });
}

// Takes no notice of being cancelled.
Task<void> goes_on(Module& module, Tensor x, Redistribution awaited) {
  try {
    co_await awaited;
  } catch (const std::exception&) {
    x = x.detach();
  }
  Task<Tensor> forward = module.forward(x);
  co_await std::move(forward);
}
Task<void> fails() {
  fail(ErrorKind::Unsupported, "as planned");
  co_return;
}

TEST(ShardGroup, GathersAnewWhatACancelledBranchCouldNotIssue) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Mlp>(world);
    fully_shard(*sharded, dp_line(world));
    const Tensor x = rows_of(world, 0, 0);
    const DTensor cut = distribute_tensor(random(world, Shape{4}), dp_line(world), Shard(0));
    std::vector<Task<void>> children;
    children.push_back(goes_on(*sharded, x, cut.redistribute(Replicate())));
    children.push_back(fails());
    const std::string text =
        co_await error_of(when_all(std::move(children)), ErrorKind::Unsupported);
    EXPECT_CONTAINS(text, "as planned");
    EXPECT_TRUE(sharded->net1.weight.is_distributed());
    const Tensor want = co_await plain->forward(x);
    const Tensor got = co_await sharded->forward(x);
    EXPECT_EQ(got.to_vector(), want.to_vector());
  });
}

// A handle from within forward reads what was freed, by gathering it again.
TEST(ShardGroup, KeepsHandlesOfWholeParametersReadable) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp model(world);
    const std::vector<double> want = model.net1.weight.detach().to_vector();
    fully_shard(model, dp_line(world));
    Tensor kept;
    model.net2.add_pre_hook([&](Module&, Inputs&) { kept = model.net1.weight.detach(); });
    for (int way = 0; way < 3; ++way) {
      co_await discard(model.forward(rows_of(world, 0, 0)));
      EXPECT_TRUE(kept.in_flight());
      if (way == 1) {
        Task<void> arrived = arrival_of(Tensors(kept));
        co_await std::move(arrived);
      }
      const DTensor sent = way == 2 ? distribute_tensor(kept, dp_line(world), Replicate()) : kept;
      EXPECT_EQ(sent.to_vector(), want);
    }
  });
}

TEST(ShardGroup, RefusesParametersThatWereReplaced) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp model(world);
    fully_shard(model, dp_line(world));
    model.net1.bias = model.net1.bias.detach();
    const std::string text = co_await error_of(discard(model.forward(rows_of(world, 0, 0))));
    EXPECT_CONTAINS(text, "fully_shard: parameter 'net1.bias' was replaced since");
  });
}

}  // namespace
}  // namespace coshard::testing
