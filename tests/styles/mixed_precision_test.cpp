// fully_shard with parameters, gradients and outputs in dtypes of their own, as FSDP2 has it.
#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

constexpr MixedPrecisionPolicy kMixed{
    .param_dtype = DType::BF16, .reduce_dtype = DType::F32, .output_dtype = DType::F32};

// Two layers, the second of which may be the first's transpose. `casts`: does in its forward what the
// policy would.
struct CastingBlock : Module {
  CastingBlock(World& world, bool casts_itself, bool tied = false)
      : weight(mul(random(world, {7, 10}, DType::F32), 0.3).detach().set_requires_grad(true)),
        again(tied ? weight
                   : mul(random(world, {7, 10}, DType::F32), 0.3).detach().set_requires_grad(true)),
        bias(random(world, {7}, DType::F32).set_requires_grad(true)),
        casts(casts_itself) {
    register_parameter("weight", weight);
    register_parameter("again", again);
    register_parameter("bias", bias);
  }
  Task<Tensor> run(Tensor x) override {
    seen.assign({weight.dtype(), x.dtype()});
    const Tensor w = casts ? to(weight, DType::BF16) : weight;
    const Tensor back = !casts ? again : again.id() == weight.id() ? w : to(again, DType::BF16);
    const Tensor b = casts ? to(bias, DType::BF16) : bias;
    co_return matmul(relu(linear(x, w, b)), back);
  }
  Tensor weight, again, bias;
  std::vector<DType> seen;  // of the weight, and of the input
  bool casts;
};

struct CastingNet : Module {
  CastingNet(World& world, bool casts_itself, bool tied = false)
      : scale(ones(world.device(), {10}, DType::F32).set_requires_grad(true)), casts(casts_itself) {
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i)
      blocks.append(std::make_shared<CastingBlock>(world, casts_itself, tied));
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override {
    if (casts) x = to(x, DType::BF16);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = co_await blocks[i].forward(x);
    x = mul(x, casts ? to(scale, DType::BF16) : scale);
    co_return casts ? to(x, DType::F32) : x;
  }
  ModuleList<CastingBlock> blocks;
  Tensor scale;
  bool casts;
};

void shard_net(CastingNet& net, const DeviceMesh& mesh, bool reshard) {
  FullyShardOptions options{.reshard_after_forward = reshard, .mp_policy = kMixed};
  options.mp_policy.output_dtype = std::nullopt;  // between blocks
  for (std::size_t i = 0; i < net.blocks.size(); ++i) fully_shard(net.blocks[i], mesh, options);
  options.mp_policy.output_dtype = kMixed.output_dtype;
  fully_shard(net, mesh, options);
}

Tensor some_rows(World& world, int rank, int step) {
  manual_seed(static_cast<std::uint64_t>(50 + step * 8 + rank));
  return random(world, {3, 10}, DType::F32).detach();
}

// Every rank trains it alone, on the rows of all ranks.
struct OneDevice {
  explicit OneDevice(World& world, bool tied = false)
      : net(world, true, tied), optimizer(net.parameters(), {.lr = 0.01}) {}
  Task<double> backward_of(World& world, int step, int batches) {
    double mine = 0;
    for (int batch = 0; batch < batches; ++batch)
      for (int rank = 0; rank < world.size(); ++rank) {
        const Tensor y = co_await net.forward(some_rows(world, rank, step * batches + batch));
        const Tensor loss = mean(mul(y, y));
        if (rank == world.rank()) mine += loss.item();
        co_await backward(loss);
      }
    for (const Tensor& p : net.parameters()) p.set_grad(mul(p.grad(), 1.0 / world.size()).detach());
    co_return mine;
  }
  CastingNet net;
  AdamW optimizer;
};

TEST(MixedPrecision, TrainsAsOneDeviceThatCastsItself) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const bool reshard : {false, true})
        for (const bool recomputes : {false, true}) {
          manual_seed(3);
          OneDevice alone(world);
          manual_seed(3);
          CastingNet sharded(world, false);
          shard_net(sharded, dp_line(world), reshard);
          sharded.blocks[1].set_recompute(recomputes);
          AdamW optimizer(sharded.parameters(), {.lr = 0.01});
          for (int step = 0; step < 3; ++step) {
            const int batches = 2;
            // An f32 that differs in its last bit may be rounded to another bf16 in the next step.
            const double tolerance = step == 0 ? 1e-5 : 0.02;
            alone.optimizer.zero_grad();
            optimizer.zero_grad();
            Task<double> reference = alone.backward_of(world, step, batches);
            const double want = co_await std::move(reference);
            double got = 0;
            for (int batch = 0; batch < batches; ++batch) {
              const Tensor x = some_rows(world, world.rank(), step * batches + batch);
              const Tensor y = co_await sharded.forward(x);
              const Tensor loss = mean(mul(y, y));
              EXPECT_EQ(loss.dtype(), DType::F32);
              got += loss.item();
              co_await backward(loss);
            }
            EXPECT_NEAR(got, want, tolerance * (1 + std::abs(want)));
            const auto a = sharded.named_parameters(), b = alone.net.named_parameters();
            for (std::size_t p = 0; p < b.size(); ++p)
              expect_close(a[p].slot->grad(), b[p].slot->grad(), tolerance);
            co_await alone.optimizer.step();
            co_await optimizer.step();
            for (std::size_t p = 0; p < b.size(); ++p)
              expect_close(*a[p].slot, *b[p].slot, tolerance);
          }
          for (std::size_t i = 0; i < 2; ++i)
            EXPECT_EQ(sharded.blocks[i].seen, (std::vector{DType::BF16, DType::BF16}));
          for (const Tensor& p : sharded.parameters()) {
            EXPECT_EQ(p.dtype(), DType::F32);
            EXPECT_EQ(p.grad().dtype(), DType::F32);
          }
        }
    });
}

// Of tied weights the terms are rounded in another order.
TEST(MixedPrecision, ComputesGradientsOfTiedParameters) {
  on_ranks(3, [](World& world) -> Task<void> {
    for (const bool recomputes : {false, true}) {
      manual_seed(3);
      OneDevice alone(world, true);
      manual_seed(3);
      CastingNet sharded(world, false, true);
      shard_net(sharded, dp_line(world), true);
      sharded.blocks[1].set_recompute(recomputes);
      Task<double> reference = alone.backward_of(world, 0, 1);
      const double want = co_await std::move(reference);
      const Tensor y = co_await sharded.forward(some_rows(world, world.rank(), 0));
      const Tensor loss = mean(mul(y, y));
      EXPECT_NEAR(loss.item(), want, 1e-5 * (1 + want));
      co_await backward(loss);
      const auto a = sharded.named_parameters(), b = alone.net.named_parameters();
      EXPECT_EQ(b.size(), 5U);
      for (std::size_t p = 0; p < b.size(); ++p)
        expect_close(a[p].slot->grad(), b[p].slot->grad(), 0.008);
    }
  });
}

// --- dtypes ---

TEST(MixedPrecision, CastsFloatingInputsUnlessToldNotTo) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool casts : {false, true}) {
      Pair pair;
      MixedPrecisionPolicy policy = kMixed;
      policy.output_dtype = std::nullopt;
      policy.cast_forward_inputs = casts;
      fully_shard(pair, dp_line(world), {.mp_policy = policy});
      Tensor x = random(world, {2, 3}, DType::F32).set_requires_grad(true);
      Inputs inputs(x);
      inputs.keyword("y", integers(world, {2}, 3));
      const Outputs got = co_await pair.call(inputs);
      EXPECT_EQ(got[0].dtype(), casts ? DType::BF16 : DType::F32);
      EXPECT_EQ(got[1].dtype(), DType::I64);
      co_await backward(sum(to(got[0], DType::F32)));
      EXPECT_EQ(x.grad().dtype(), DType::F32);
      EXPECT_EQ(x.grad().to_vector(), std::vector<double>(6, 1.0));
      Inputs named;
      named.keyword("x", x);
      const Outputs by_name = co_await pair.call(named);
      EXPECT_EQ(by_name[0].dtype(), casts ? DType::BF16 : DType::F32);
    }
  });
}

class BytesSent final : public Observer {
 public:
  explicit BytesSent(World& world) : world_(world) { world.add_observer(this); }
  ~BytesSent() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    (event.kind == CollectiveKind::AllGather ? gathered : reduced) += event.bytes;
    ++count;
  }
  std::int64_t gathered = 0, reduced = 0;
  int count = 0;

 private:
  World& world_;
};

// f32 weights: gathered in param_dtype, reduced in reduce_dtype, which is param_dtype by default.
TEST(MixedPrecision, SendsParametersAndGradientsInTheirDtypes) {
  on_ranks(2, [](World& world) -> Task<void> {
    struct Case {
      MixedPrecisionPolicy policy;
      std::int64_t gathered, reduced;  // bytes of an element
    };
    std::int64_t unit = 0;
    for (const Case& each : {Case{{}, 4, 4}, Case{{.param_dtype = DType::BF16}, 2, 2},
                             Case{{.reduce_dtype = DType::BF16}, 4, 2}, Case{kMixed, 2, 4}}) {
      CastingBlock block(world, false);
      fully_shard(block, dp_line(world),
                  {.reshard_after_forward = false, .mp_policy = each.policy});
      const BytesSent sent(world);
      const Tensor y = co_await block.forward(some_rows(world, 0, 0));
      co_await backward(sum(y));
      if (unit == 0) unit = sent.gathered / 4;
      EXPECT_EQ(sent.count, 2);
      EXPECT_EQ(sent.gathered, unit * each.gathered);
      EXPECT_EQ(sent.reduced, unit * each.reduced);
      EXPECT_EQ(block.weight.grad().dtype(), DType::F32);
    }
  });
}

// --- accumulation ---

struct ScaledBy : Module {
  ScaledBy(World& world, DType dtype)
      : scale(ones(world.device(), {5}, dtype).set_requires_grad(true)) {
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override { co_return mul(x, scale); }
  Tensor scale;
};

Task<void> add_gradient(ScaledBy& module, World& world, double value) {
  const Tensor x = full(world.device(), {5}, value, DType::F32);
  const Tensor y = co_await module.forward(to(x, module.scale.dtype()));
  co_await backward(sum(to(y, DType::F32)));
}

TEST(MixedPrecision, AddsUpMicroBatchesInTheReduceDtype) {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const MixedPrecisionPolicy wide{.reduce_dtype = DType::F32};
      struct Case {
        DType dtype;
        MixedPrecisionPolicy policy;
        double want;
      };
      for (const Case& each : {Case{DType::F32, kMixed, 264}, Case{DType::BF16, wide, 264},
                               Case{DType::BF16, {}, 256}}) {
        ScaledBy module(world, each.dtype);
        fully_shard(module, dp_line(world), {.mp_policy = each.policy});
        for (int step = 0; step < 2; ++step) {
          module.zero_grad();
          for (int batch = 0; batch < 9; ++batch) {
            Task<void> more = add_gradient(module, world, batch == 0 ? 256 : 1);
            co_await std::move(more);
          }
          EXPECT_EQ(module.scale.grad().dtype(), each.dtype);
          const Tensor all = full_tensor(module.scale.grad());
          EXPECT_EQ(all.to_vector(), std::vector<double>(5, each.want));
        }
      }
    });
}

// What the program has made of a gradient counts, not the sum that is kept beside it.
TEST(MixedPrecision, AddsToGradientsThatWereScaledOrReplaced) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool in_place : {false, true}) {
      ScaledBy module(world, DType::BF16);
      fully_shard(module, dp_line(world), {.mp_policy = {.reduce_dtype = DType::F32}});
      co_await add_gradient(module, world, 256);
      {
        const NoGradGuard no_grad;
        const Tensor gradient = module.scale.grad();
        if (in_place)
          mul_(gradient, 0.5);
        else
          module.scale.set_grad(mul(gradient, 0.5));
      }
      co_await add_gradient(module, world, 1);
      const Tensor all = full_tensor(module.scale.grad());
      EXPECT_EQ(all.to_vector(), std::vector<double>(5, 129));
    }
  });
}

// --- beside tensor parallelism: outputs arrive later than the module's forward ends ---

Task<std::vector<double>> losses_of(World& world, MixedPrecisionPolicy policy, bool recomputes) {
  manual_seed(5);
  nn::Transformer model(tiny_transformer(), world);
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  co_await parallelize_module(model, mesh["tp"], nn::transformer_plan(true));
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    MixedPrecisionPolicy of_layer = policy;
    of_layer.output_dtype = std::nullopt;
    fully_shard(model.layers[i], mesh["dp"], {.mp_policy = of_layer});
    model.layers[i].set_recompute(recomputes);
  }
  fully_shard(model, mesh["dp"], {.mp_policy = policy});
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  manual_seed(static_cast<std::uint64_t>(9 + mesh.local_rank("dp")));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor tokens = randint(0, 32, Shape{2, 8});
    const Tensor logits = co_await model.forward(tokens);
    EXPECT_EQ(logits.dtype(), DType::F32);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
    losses.push_back(to_local(loss.detach()).item());
    co_await backward(loss);
    Task<Tensor> clipping = clip_grad_norm(model.parameters(), 1.0);
    co_await std::move(clipping);
    co_await optimizer.step();
  }
  co_return losses;
}

TEST(MixedPrecision, TrainsWhatTensorParallelismHasCut) {
  on_ranks(4, [](World& world) -> Task<void> {
    Task<std::vector<double>> exact = losses_of(world, {}, false);
    const std::vector<double> want = co_await std::move(exact);
    std::vector<double> once;
    for (const bool recomputes : {false, true}) {
      Task<std::vector<double>> mixed = losses_of(world, kMixed, recomputes);
      const std::vector<double> got = co_await std::move(mixed);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.02 * want[i]);
      EXPECT_NE(got, want);
      if (recomputes) {
        EXPECT_EQ(got, once);
      }
      once = got;
    }
  });
}

TEST(MixedPrecision, RefusesDtypesThatAreNotFloating) {
  on_ranks(1, [](World& world) -> Task<void> {
    struct Case {
      MixedPrecisionPolicy policy;
      const char* name;
    };
    for (const Case& each : {Case{{.param_dtype = DType::I64}, "param_dtype"},
                             Case{{.reduce_dtype = DType::I32}, "reduce_dtype"},
                             Case{{.output_dtype = DType::Bool}, "output_dtype"}}) {
      CastingBlock block(world, false);
      const auto shard = [&]() -> Task<void> {
        fully_shard(block, dp_line(world), {.mp_policy = each.policy});
        co_return;
      };
      const std::string text = co_await error_of(shard());
      EXPECT_CONTAINS(text, each.name);
      EXPECT_FALSE(block.weight.is_distributed());
    }
  });
}

}  // namespace
}  // namespace coshard::testing
