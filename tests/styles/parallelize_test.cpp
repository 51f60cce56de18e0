#include <coshard/styles/parallelize.h>

#include "styles/path_pattern.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// An encoder and a decoder, as in "encoder.net1".
struct Nested : Module {
  explicit Nested(World& world) : encoder(world), decoder(world) {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor h = co_await encoder.forward(std::move(x));
    co_return co_await decoder.forward(std::move(h));
  }
  Mlp encoder, decoder;
};

struct Tied : Module {
  explicit Tied(World& world)
      : emb(12, 8, world, kEmbeddingF64), head(8, 12, world, {.bias = false, .dtype = DType::F64}) {
    head.weight = emb.weight;
    register_module("emb", emb);
    register_module("head", head);
  }
  Task<Tensor> run(Tensor ids) override {
    Tensor h = co_await emb.forward(std::move(ids));
    co_return co_await head.forward(gelu(h));
  }
  nn::Embedding emb;
  nn::Linear head;
};

// A style of the user's own: any copyable type with apply and <<.
struct Doubled {
  void apply(Module& module, const DeviceMesh&, const ParallelizeOptions&) const {
    module.add_post_hook([](Module&, Outputs& out) { out[0] = mul(out[0], 2.0); });
  }
  friend std::ostream& operator<<(std::ostream& out, const Doubled&) { return out << "Doubled"; }
};

TEST(ParallelPlan, KeepsTheOrderOfItsKeysAndPrintsThem) {
  ParallelPlan plan;
  plan["net2"] = RowwiseParallel{};
  plan["net1"] = ColwiseParallel{};
  plan["net2"] = RowwiseParallel{.output_layouts = Shard(0)};
  EXPECT_EQ(plan.size(), 2U);
  EXPECT_EQ(
      str_cat(plan),
      "'net2': RowwiseParallel(input_layouts=S(-1), output_layouts=S(0), use_local_output=true)\n"
      "'net1': ColwiseParallel(input_layouts=R, output_layouts=S(-1), use_local_output=true)\n");
}

TEST(ParallelPlan, AStyleStaysWhereItIsWhenKeysAreAdded) {
  ParallelPlan plan;
  Style& first = plan["first"];
  for (int i = 0; i < 40; ++i) plan[str_cat("key", i)] = NoParallel{};
  first = RowwiseParallel{};
  EXPECT_TRUE(str_cat(plan.begin()->second).starts_with("RowwiseParallel("));
  ParallelPlan both;
  both["a"] = both["b"] = ColwiseParallel{};
  for (const auto& [key, style] : both)
    EXPECT_TRUE(str_cat(style).starts_with("ColwiseParallel(")) << key;
}

TEST(ParallelizeModule, FindsModulesByNameAndWildcard) {  // A100
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor x = random(world, Shape{12, 10});
    for (const char* first : {"encoder.net1", "*.net1", "*.net[1-1]", "[ed]*coder.n?t1"}) {
      auto [plain, model] = twins<Nested>(world);
      ParallelPlan plan;
      plan[first] = ColwiseParallel{};
      plan["encoder.net2"] = RowwiseParallel{};
      const bool decoder = std::string(first) != "encoder.net1";
      if (decoder) plan["decoder.net2"] = RowwiseParallel{};
      co_await parallelize_module(*model, mesh, plan);
      EXPECT_TRUE(model->encoder.net1.weight.is_distributed());
      EXPECT_EQ(model->decoder.net1.weight.is_distributed(), decoder);
      const Tensor y = co_await model->forward(x);
      const Tensor want = co_await plain->forward(x);
      expect_close(y, want);
    }
  });
}

TEST(ParallelizeModule, AppliesEveryKeyThatMatches) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp model(world);
    ParallelPlan plan;
    plan["net*"] = ColwiseParallel{.output_layouts = Replicate(), .use_local_output = false};
    plan["net2"] =
        PrepareModuleOutput{.output_layouts = Replicate(), .desired_output_layouts = Shard(0)};
    co_await parallelize_module(model, mesh, plan);
    const Tensor x = random(world, Shape{4, 10});
    const Tensor y = co_await model.forward(x);
    EXPECT_EQ(y.shape(), (Shape{2, 10}));
  });
}

TEST(ParallelizeModule, DoesNothingForAnEmptyPlan) {  // A101
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp model(world);
    CountingObserver counter(world);
    const ParallelPlan plan;
    co_await parallelize_module(model, mesh, plan);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_FALSE(model.net1.weight.is_distributed());
  });
}

TEST(ParallelizeModule, AKeyThatMatchesNothingNamesItsNeighboursAndChangesNothing) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Nested model(world);
    ParallelPlan plan;
    plan["encoder.net1"] = ColwiseParallel{};
    plan["*.ent2"] = RowwiseParallel{};
    const std::string text = co_await error_of(parallelize_module(model, mesh, plan));
    EXPECT_CONTAINS(text, "'*.ent2' matches no module; close names: encoder.net2");
    EXPECT_FALSE(model.encoder.net1.weight.is_distributed());
    ParallelPlan parameter;
    parameter["encoder.net1.weight"] = ColwiseParallel{};
    const std::string named = co_await error_of(parallelize_module(model, mesh, parameter));
    EXPECT_CONTAINS(named, "names a parameter");
    EXPECT_CONTAINS(named, "use 'encoder.net1'");
    ParallelPlan empty;
    empty["encoder"];
    const std::string none = co_await error_of(parallelize_module(model, mesh, empty));
    EXPECT_CONTAINS(none, "no style");
  });
}

TEST(ParallelizeModule, TakesTheParametersOfTheSourceRank) {  // A102
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    manual_seed(static_cast<std::uint64_t>(100 + world.rank()));
    nn::Linear linear(8, 8, world, kF64), own(8, 8, world, kF64);
    const Tensor mine = own.weight.detach();
    manual_seed(101);
    const nn::Linear from_one(8, 8, world, kF64);
    CountingObserver counter(world);
    ParallelizeOptions options;
    options.src_data_rank = 1;
    co_await parallelize_module(linear, mesh, ColwiseParallel{}, options);
    EXPECT_GT(take(counter).other, 0);
    expect_close(linear.weight, from_one.weight, 0);
    counter.reset();
    options.src_data_rank = std::nullopt;
    co_await parallelize_module(own, mesh, ColwiseParallel{}, options);
    EXPECT_EQ(take(counter), Issued{});
    expect_close(to_local(own.weight.detach()), part(world, mine, 0), 0);
    options.src_data_rank = 4;
    const std::string text =
        co_await error_of(parallelize_module(own, mesh, ColwiseParallel{}, options));
    EXPECT_CONTAINS(text, "src_data_rank 4");
  });
}

TEST(ParallelizeModule, RefusesAMeshOfTwoDimensions) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    Mlp model(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    const std::string text = co_await error_of(parallelize_module(model, mesh, plan));
    EXPECT_CONTAINS(text, "(dp=2,tp=2)");
    const std::string undefined = co_await error_of(parallelize_module(model, DeviceMesh(), plan));
    EXPECT_CONTAINS(undefined, "undefined");
  });
}

TEST(ParallelizeModule, KeepsTiedParametersTied) {  // A108
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    auto [plain, model] = twins<Tied>(world);
    ParallelPlan plan;
    plan["emb"] = RowwiseParallel{.input_layouts = Replicate()};
    plan["head"] = ColwiseParallel{.output_layouts = Replicate()};
    co_await parallelize_module(*model, mesh, plan);
    EXPECT_EQ(model->emb.weight.id(), model->head.weight.id());
    EXPECT_EQ(model->named_parameters().size(), 1U);
    const Tensor ids = integers(world, Shape{2, 5}, 12);
    const Counted got = co_await run_counted(world, *model, ids);
    const Counted want = co_await run_counted(world, *plain, ids);
    expect_close(got.output, want.output);
    expect_close(model->emb.weight.grad(), plain->emb.weight.grad());
  });
}

TEST(ParallelizeModule, TakesAStyleOfTheUsers) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Identity identity;
    co_await parallelize_module(identity, mesh, Doubled());
    const Tensor x = full(world.device(), Shape{2}, 3.0);
    const Tensor y = co_await identity.forward(x);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{6, 6}));
  });
}

TEST(ParallelizeModule, MakesEverySliceOfAMeshAReplicaOfItsOwn) {
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, mlp] = twins<Mlp>(world);
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    co_await parallelize_module(*mlp, mesh["tp"], plan);
    const Tensor x = random(world, Shape{6, 10});
    const std::int64_t half = 3 * mesh.local_rank("dp");
    const Tensor own = contiguous(slice(x, 0, half, half + 3));
    const Tensor y = co_await mlp->forward(own);
    const Tensor want = co_await plain->forward(x);
    expect_close(y, contiguous(slice(want, 0, half, half + 3)).detach());
    const Tensor loss = sum(mul(y, y)), want_loss = sum(mul(want, want));
    co_await backward(loss);
    co_await backward(want_loss);
    all_reduce_gradients(mlp->parameters(), mesh, mesh.dim("dp"));
    for (const NamedParameter& p : mlp->named_parameters())
      expect_close(p.slot->grad(), plain->parameter(p.name).grad());
  });
}

}  // namespace
}  // namespace coshard::testing
