// Sharded data parallelism: losses and gradients as those of DataParallel, what is issued and when,
// what it holds, and what it refuses.
#include <coshard/styles/fully_shard.h>

#include <algorithm>

#include <coshard/runtime/launch/simulate.h>
#include "tests/styles/support.h"
#include "tests/support/hidden_products.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

DeviceMesh dp_line(World& world) { return init_device_mesh(world, {world.size()}, {"dp"}); }

// MLPs of 10 -> 7 -> 10, one after the other: parts of 10 and 7 rows are uneven, some empty.
struct Layers : Module {
  explicit Layers(World& world, std::int64_t count = 3, std::int64_t in = 10,
                  std::int64_t hidden = 7) {
    register_module("layers", layers);
    for (std::int64_t i = 0; i < count; ++i)
      layers.append(std::make_shared<Mlp>(world, in, hidden, in));
    scale = ones(world.device(), Shape{in}, DType::F64).set_requires_grad(true);
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override {
    for (std::size_t i = 0; i < layers.size(); ++i) x = co_await layers[i].forward(x);
    co_return mul(x, scale);
  }
  ModuleList<Mlp> layers;
  Tensor scale;
};

enum class Way { Alone, Replicas, Shards };

struct Kind {
  bool reshard = true;
  Overlap overlap = Overlap::Auto;
  bool recomputes = false;
  int parts = 1;            // woven
  int batches = 1;          // backwards before a step
  bool whole_only = false;  // one group
};

void shard_layers(Layers& model, const DeviceMesh& mesh, const FullyShardOptions& options) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) fully_shard(model.layers[i], mesh, options);
  fully_shard(model, mesh, options);
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> parameters;
};

// Rows of this rank, of one batch.
Tensor rows_of(World& world, int step, int batch) {
  manual_seed(static_cast<std::uint64_t>(100 + step * 10 + batch));
  const Tensor all = random(world, Shape{2 * world.size(), 10});
  return slice(all, 0, 2 * world.rank(), 2 * world.rank() + 2).detach();
}

Task<Trained> trained(World& world, Way way, Kind kind, int steps = 10) {
  manual_seed(5);
  Layers model(world);
  const DeviceMesh mesh = dp_line(world);
  const FullyShardOptions options{.reshard_after_forward = kind.reshard, .overlap = kind.overlap};
  if (way == Way::Shards && kind.whole_only) fully_shard(model, mesh, options);
  if (way == Way::Shards && !kind.whole_only) shard_layers(model, mesh, options);
  if (kind.recomputes) model.layers[1].set_recompute();
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::optional<DataParallel> replicas;
  if (way == Way::Replicas) replicas.emplace(model.parameters(), mesh, 0);
  Trained done;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < kind.batches; ++batch) {
      if (replicas) replicas->set_requires_gradient_sync(batch + 1 == kind.batches);
      const Tensor x = rows_of(world, step, batch);
      Task<Tensor> forward =
          kind.parts == 1 ? model.forward(x) : woven(model, kind.parts).forward(x);
      const Tensor y = co_await std::move(forward);
      const Tensor loss = mean(mul(y, y));
      done.losses.push_back(loss.item());
      co_await backward(loss);
    }
    Task<Tensor> clipping = clip_grad_norm(model.parameters(), 1.0);
    const Tensor norm = co_await std::move(clipping);
    done.norms.push_back(norm.item());
    co_await optimizer.step();
  }
  for (const Tensor& p : model.parameters()) {
    const Tensor all = p.is_distributed() ? full_tensor(p.detach()) : p.detach();
    done.parameters.push_back(all.to_vector());
  }
  co_return done;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-10 * (1 + std::abs(want[i]))) << i;
}

void expect_same(const Trained& got, const Trained& want) {
  ASSERT_FALSE(want.losses.empty());
  EXPECT_EQ(got.losses.front(), want.losses.front());  // to the bit: the first forward
  expect_near(got.losses, want.losses);
  expect_near(got.norms, want.norms);
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (std::size_t p = 0; p < want.parameters.size(); ++p)
    expect_near(got.parameters[p], want.parameters[p]);
}

TEST(FullyShard, TrainsAsDataParallelDoes) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const Trained want = co_await trained(world, Way::Replicas, {});
      for (const bool reshard : {false, true})
        for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
          const Kind kind{.reshard = reshard, .overlap = overlap};
          const Trained got = co_await trained(world, Way::Shards, kind);
          expect_same(got, want);
        }
    });
}

TEST(FullyShard, TrainsWithRecomputationWeavingAndAccumulation) {
  for (const int ranks : {2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const Kind plain : {Kind{.recomputes = true}, Kind{.parts = 2}, Kind{.batches = 3},
                               Kind{.recomputes = true, .parts = 2, .batches = 2}}) {
        Task<Trained> alike = trained(world, Way::Replicas, plain, 4);
        const Trained want = co_await std::move(alike);
        for (const bool reshard : {false, true})
          for (const bool whole_only : {false, true}) {
            Kind kind = plain;
            kind.reshard = reshard;
            kind.whole_only = whole_only;
            Task<Trained> sharded = trained(world, Way::Shards, kind, 4);
            const Trained got = co_await std::move(sharded);
            expect_same(got, want);
          }
      }
    });
}

TEST(FullyShard, RunsAsOneRankDoesToTheBit) {
  on_ranks(3, [](World& world) -> Task<void> {
    const auto [alone, sharded] = twins<Layers>(world);
    shard_layers(*sharded, dp_line(world), {});
    const Tensor x = rows_of(world, 1, 0);
    for (const bool recorded : {true, false}) {
      std::optional<NoGradGuard> no_grad;
      if (!recorded) no_grad.emplace();
      for (int time = 0; time < 2; ++time) {
        const Tensor want = co_await alone->forward(x);
        const Tensor got = co_await sharded->forward(x);
        EXPECT_EQ(got.to_vector(), want.to_vector());
        EXPECT_EQ(got.requires_grad(), recorded);
      }
    }
  });
}

TEST(FullyShard, LeavesShardsAndTheirGradients) {
  on_ranks(4, [](World& world) -> Task<void> {
    Layers model(world, 1);
    const Tensor before = model.layers[0].net1.weight.detach();
    const DeviceMesh mesh = dp_line(world);
    shard_layers(model, mesh, {});
    const Tensor& weight = model.layers[0].net1.weight;  // 7 rows: 2, 2, 2, 1
    EXPECT_EQ(weight.layout(), Layout(Shard(0)));
    EXPECT_EQ(weight.local_shape()[0], world.rank() == 3 ? 1 : 2);
    EXPECT_EQ(full_tensor(weight.detach()).to_vector(), before.to_vector());
    EXPECT_EQ(model.parameters().size(), 5U);
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    co_await backward(mean(mul(y, y)));
    for (const Tensor& p : model.parameters()) {
      EXPECT_EQ(p.grad().layout(), Layout(Shard(0)));
      EXPECT_TRUE(p.grad().in_flight());
    }
    Task<Tensor> clipping = clip_grad_norm(model.parameters(), 1e9);
    co_await std::move(clipping);
    EXPECT_EQ(weight.grad().local_shape(), weight.local_shape());
  });
}

// Of n groups: a gather each in forward; in backward another and a reduction.
TEST(FullyShard, IssuesOneCollectivePerGroup) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool reshard : {false, true})
      for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
        Layers model(world);
        shard_layers(model, dp_line(world), {.reshard_after_forward = reshard, .overlap = overlap});
        for (int time = 0; time < 3; ++time) {
          const Counted run = co_await run_counted(world, model, rows_of(world, 0, 0));
          EXPECT_EQ(run.forward, (Issued{.all_gather = 4}));
          EXPECT_EQ(run.backward, (Issued{.all_gather = reshard ? 4 : 0, .reduce_scatter = 4}));
        }
      }
  });
}

// Not gathered again for a forward under a NoGradGuard, unless the optimizer has stepped.
TEST(FullyShard, KeepsWhatItNeedNotGatherAgain) {
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

// --- modules that are not one chain ---

// Runs its layer twice, and another one not at all; a parameter is in two slots.
struct Odd : Module {
  explicit Odd(World& world) : twice(world), unused(world) {
    register_module("twice", twice);
    register_module("unused", unused);
    for (Tensor* slot : {&first, &second, &idle}) *slot = Tensor();
    first = random(world, Shape{10}).set_requires_grad(true);
    second = first;
    idle = ones(world.device(), Shape{3}, DType::F64).set_requires_grad(true);
    frozen = random(world, Shape{10});
    register_parameter("first", first);
    register_parameter("second", second);
    register_parameter("idle", idle);
    register_parameter("frozen", frozen);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor y = co_await twice.forward(mul(x, first));
    y = co_await twice.forward(mul(y, frozen));
    co_return mul(y, second);
  }
  Mlp twice, unused;
  Tensor first, second, idle, frozen;
};

TEST(FullyShard, TakesModulesThatRunTwiceTiedFrozenAndUnusedParameters) {
  on_ranks(3, [](World& world) -> Task<void> {
    for (const bool reshard : {false, true}) {
      const auto [plain, sharded] = twins<Odd>(world);
      const DeviceMesh mesh = dp_line(world);
      const FullyShardOptions options{.reshard_after_forward = reshard};
      for (Module* part :
           std::initializer_list<Module*>{&sharded->twice, &sharded->unused, sharded.get()})
        fully_shard(*part, mesh, options);
      const DataParallel replicas(plain->parameters(), mesh, 0);
      EXPECT_EQ(sharded->first.id(), sharded->second.id());
      for (int time = 0; time < 3; ++time) {
        plain->zero_grad();
        sharded->zero_grad();
        Tensor x = rows_of(world, time, 0).set_requires_grad(true), input_grad;
        for (Odd* model : {plain.get(), sharded.get()}) {
          const Tensor y = co_await model->forward(x);
          co_await backward(mean(mul(y, y)));
          if (model == plain.get()) input_grad = x.grad();
          if (model == sharded.get()) expect_close(x.grad(), input_grad);
          x.set_grad({});
        }
        const auto want = plain->named_parameters(), got = sharded->named_parameters();
        for (std::size_t i = 0; i < want.size(); ++i) {
          const Tensor gradient = want[i].slot->grad();
          EXPECT_EQ(got[i].slot->grad().defined(), gradient.defined()) << want[i].name;
          if (gradient.defined()) expect_close(got[i].slot->grad(), gradient);
        }
      }
    }
  });
}

// All of it is frozen, but its input wants a gradient: backward still needs what was freed.
TEST(FullyShard, GathersFrozenParametersForTheGradientOfTheInput) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Layers>(world);
    for (Module* model : {plain.get(), sharded.get()})
      for (Tensor p : model->parameters()) p.set_requires_grad(false);
    shard_layers(*sharded, dp_line(world), {});
    const Tensor x = rows_of(world, 0, 0);
    const Counted want = co_await run_counted(world, *plain, x.detach());
    const Counted got = co_await run_counted(world, *sharded, x.detach());
    expect_close(got.input_grad, want.input_grad);
    EXPECT_EQ(got.backward, (Issued{.all_gather = 4}));
  });
}

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

TEST(FullyShard, GathersAgainForABackwardThatDoesNotPassTheOutputs) {
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

// --- beside tensor parallelism ---

struct TwoWays {
  bool shards = false, sequence_parallel = false, recomputes = false, tp_first = false;
  int batches = 1;
};

Task<Trained> trained_two_ways(World& world, TwoWays kind) {
  manual_seed(5);
  nn::TransformerConfig config = tiny_transformer();
  config.dtype = DType::F64;
  nn::Transformer model(config, world);
  std::vector<std::string> names = {"dp", "tp"};
  if (kind.tp_first) std::ranges::reverse(names);
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, names);
  co_await parallelize_module(model, mesh["tp"], nn::transformer_plan(kind.sequence_parallel));
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (kind.shards) fully_shard(model.layers[i], mesh["dp"]);
    model.layers[i].set_recompute(kind.recomputes);
  }
  std::optional<DataParallel> replicas;
  if (kind.shards)
    fully_shard(model, mesh["dp"]);
  else
    replicas.emplace(model.parameters(), mesh, mesh.dim("dp"));
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  manual_seed(static_cast<std::uint64_t>(9 + mesh.local_rank("dp")));
  Trained done;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < kind.batches; ++batch) {
      if (replicas) replicas->set_requires_gradient_sync(batch + 1 == kind.batches);
      const Tensor tokens = randint(0, 32, Shape{2, 8});
      const Tensor logits = co_await model.forward(tokens);
      const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
      done.losses.push_back(to_local(loss.detach()).item());
      co_await backward(loss);
    }
    Task<Tensor> clipping = clip_grad_norm(model.parameters(), 1.0);
    const Tensor norm = co_await std::move(clipping);
    done.norms.push_back(norm.item());
    co_await optimizer.step();
  }
  for (const Tensor& p : model.parameters()) {
    const Tensor all = p.is_distributed() ? full_tensor(p.detach()) : p.detach();
    done.parameters.push_back(all.to_vector());
  }
  co_return done;
}

TEST(FullyShard, ShardsWhatTensorParallelismHasCut) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const bool tp_first : {false, true})
      for (const bool sequence_parallel : {false, true})
        for (const bool recomputes : {false, true}) {
          TwoWays kind{.sequence_parallel = sequence_parallel,
                       .recomputes = recomputes,
                       .tp_first = tp_first,
                       .batches = recomputes ? 2 : 1};
          Task<Trained> alike = trained_two_ways(world, kind);
          const Trained want = co_await std::move(alike);
          kind.shards = true;
          Task<Trained> sharded = trained_two_ways(world, kind);
          const Trained got = co_await std::move(sharded);
          expect_same(got, want);
        }
  });
}

struct InPlace : Mlp {
  using Mlp::Mlp;
  Task<Tensor> run(Tensor x) override {
    Tensor y = co_await net1.forward(x);
    mul_(y, 2);
    Tensor z = co_await net2.forward(y);
    add_(z, x);
    co_return z;
  }
};

TEST(FullyShard, LetsOutputsBeWrittenToInPlace) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<InPlace>(world);
    fully_shard(sharded->net1, dp_line(world));
    fully_shard(*sharded, dp_line(world));
    const Tensor x = rows_of(world, 0, 0);
    const Counted want = co_await run_counted(world, *plain, x.detach());
    const Counted got = co_await run_counted(world, *sharded, x.detach());
    expect_close(got.input_grad, want.input_grad);
    EXPECT_EQ(got.output.to_vector(), want.output.to_vector());
  });
}

TEST(FullyShard, RefusesTwoBackwardsAtOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world);
    shard_layers(model, dp_line(world), {});
    std::vector<Task<void>> walks;
    for (int time = 0; time < 2; ++time) {
      const Tensor y = co_await model.forward(rows_of(world, time, 0));
      walks.push_back(backward(mean(mul(y, y))));
    }
    const std::string text = co_await error_of(when_all(std::move(walks)));
    EXPECT_CONTAINS(text, "another one, which has not ended, reduces gradients of");
  });
}

// A whole Transformer, whose blocks are checkpointed within one group, or are groups.
TEST(FullyShard, TrainsATransformer) {
  on_ranks(2, [](World& world) -> Task<void> {
    std::vector<std::vector<double>> want;
    for (int way = 0; way < 4; ++way) {
      manual_seed(5);
      nn::TransformerConfig config = tiny_transformer();
      config.dtype = DType::F64;
      nn::Transformer model(config, world);
      const DeviceMesh mesh = dp_line(world);
      std::optional<DataParallel> replicas;
      if (way == 0) replicas.emplace(model.parameters(), mesh, 0);
      for (std::size_t i = 0; i < model.layers.size(); ++i) {
        if (way == 2 || way == 3) fully_shard(model.layers[i], mesh);
        model.layers[i].set_recompute(way == 1 || way == 3);
      }
      if (way > 0) fully_shard(model, mesh);
      AdamW optimizer(model.parameters(), {.lr = 0.01});
      manual_seed(static_cast<std::uint64_t>(9 + world.rank()));
      std::vector<std::vector<double>> losses(1);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const Tensor tokens = randint(0, 32, Shape{2, 8});
        const Tensor logits = co_await model.forward(tokens);
        const Tensor loss = cross_entropy(logits.reshape({16, 32}), tokens.reshape({16}));
        losses[0].push_back(loss.item());
        co_await backward(loss);
        co_await optimizer.step();
      }
      if (way == 0) want = losses;
      expect_near(losses[0], want[0]);
    }
  });
}

// --- what runs under what ---

Task<int> hidden_in_forward(World& world, Overlap overlap) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.overlap = overlap});
  const NoGradGuard no_grad;
  const Tensor x = rows_of(world, 0, 0);
  co_await discard(model.forward(x));  // which shows the order
  const HiddenProducts hidden(world);
  co_await discard(model.forward(x));
  co_return hidden.count();
}

Task<int> hidden_in_backward(World& world, Overlap overlap, bool reshard, bool recomputes) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.reshard_after_forward = reshard, .overlap = overlap});
  for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].set_recompute(recomputes);
  const Tensor y = co_await model.forward(rows_of(world, 0, 0));
  const Tensor loss = mean(mul(y, y));
  const HiddenProducts hidden(world);
  co_await backward(loss);
  co_return hidden.count();
}

// Two products in a layer's forward, four in its backward, three in that of the first.
TEST(FullyShard, ComputesUnderGathersAndReductions) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    EXPECT_EQ(co_await hidden_in_forward(world, Overlap::Auto), 4);  // not the last layer
    EXPECT_EQ(co_await hidden_in_forward(world, Overlap::Off), 0);
    for (const bool reshard : {false, true}) {
      // Without gathers the last layer, whose backward is first, has nothing to run under but the
      // reduction of what the model itself has.
      EXPECT_EQ(co_await hidden_in_backward(world, Overlap::Auto, reshard, false), 11);
      EXPECT_EQ(co_await hidden_in_backward(world, Overlap::Off, reshard, false), 0);
    }
    EXPECT_EQ(co_await hidden_in_backward(world, Overlap::Auto, true, true), 17);
    EXPECT_EQ(co_await hidden_in_backward(world, Overlap::Off, true, true), 0);
  });
}

// By the clock: products that ran while a transfer of this label was under way.
class DuringTransfers final : public Observer {
 public:
  DuringTransfers(World& world, std::string_view label) : world_(world), label_(label) {
    world.add_observer(this);
  }
  ~DuringTransfers() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t now) override { begun_[event.id] = now; }
  void ready(const CommEvent& event, std::int64_t, std::int64_t done, std::int64_t) override {
    if (event.label == label_) transfers_.emplace_back(begun_[event.id], done);
  }
  void computed(std::string_view, ComputeClass what, std::int64_t begin,
                std::int64_t end) override {
    if (what == ComputeClass::Gemm) products_.emplace_back(begin, end);
  }
  std::ptrdiff_t count() const {
    return std::ranges::count_if(products_, [this](const auto& product) {
      return std::ranges::any_of(transfers_, [&product](const auto& transfer) {
        return product.first < transfer.second && transfer.first < product.second;
      });
    });
  }

 private:
  using Span = std::pair<std::int64_t, std::int64_t>;
  World& world_;
  std::string_view label_;
  std::map<std::uint64_t, std::int64_t> begun_;
  std::vector<Span> transfers_, products_;
};

Task<std::ptrdiff_t> during_gathers(World& world, Overlap overlap) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.overlap = overlap});
  const NoGradGuard no_grad;
  const Tensor x = rows_of(world, 0, 0);
  co_await discard(model.forward(x));
  const DuringTransfers seen(world, "parameters");
  co_await discard(model.forward(x));
  co_return seen.count();
}

// The link takes far longer than a machine that is busy takes for a layer.
TEST(FullyShard, ComputesDuringTransfers) {
  if (!on_cpu() || test_options(2).communicator != "local") GTEST_SKIP() << "needs a link";
  WorldOptions options = test_options(2);
  options.link = parse_link("100ms,100GB/s");
  run_ranks(options, [](World& world) -> Task<void> {
    EXPECT_GE(co_await during_gathers(world, Overlap::Auto), 2);
    EXPECT_EQ(co_await during_gathers(world, Overlap::Off), 0);
  });
}

// What this rank issues, in order.
class IssuedLog final : public Observer {
 public:
  explicit IssuedLog(World& world) : world_(world) { world.add_observer(this); }
  ~IssuedLog() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    all.push_back(str_cat(event.label, " ", event.bytes));
  }
  std::vector<std::string> all;

 private:
  World& world_;
};

// Sizes tell the groups apart: the model's scale, then layers of 4, 5 and 6 hidden features.
struct Growing : Module {
  explicit Growing(World& world) {
    register_module("layers", layers);
    for (std::int64_t i = 0; i < 3; ++i) layers.append(std::make_shared<Mlp>(world, 10, 4 + i, 10));
  }
  Task<Tensor> run(Tensor x) override {
    for (std::size_t i = 0; i < layers.size(); ++i) x = co_await layers[i].forward(x);
    co_return x;
  }
  ModuleList<Mlp> layers;
};

TEST(FullyShard, GathersAheadInTheOrderOfTheLastForwardAndInReverse) {
  std::vector<std::string> orders[2];
  on_ranks(2, [&orders](World& world) -> Task<void> {
    Growing model(world);
    const DeviceMesh mesh = dp_line(world);
    for (std::size_t i = 0; i < model.layers.size(); ++i) fully_shard(model.layers[i], mesh);
    fully_shard(model, mesh);
    const Tensor x = rows_of(world, 0, 0);
    co_await discard(model.forward(x));
    const IssuedLog log(world);
    const Tensor y = co_await model.forward(x);
    const Tensor loss = mean(mul(y, y));
    co_await backward(loss);
    orders[world.rank()] = log.all;
  });
  ASSERT_EQ(orders[0].size(), 9U);
  std::vector<std::string> sizes(orders[0].begin(), orders[0].begin() + 3);  // of the layers
  const auto gradients_of = [&](int layer) {
    std::string text = sizes[static_cast<std::size_t>(layer)];
    return text.replace(0, text.find(' '), "gradients");
  };
  const std::vector<std::string> want = {sizes[0], sizes[1],        sizes[2],         // forward
                                         sizes[2], sizes[1],        gradients_of(2),  // backward
                                         sizes[0], gradients_of(1), gradients_of(0)};
  EXPECT_NE(sizes[0], sizes[1]);
  EXPECT_EQ(orders[0], want);
  EXPECT_EQ(orders[1], orders[0]);
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
Task<StepBytes> bytes_of_step(World& world, std::int64_t layers, bool reshard, bool recorded) {
  Layers model(world, layers, 128, 128);
  shard_layers(model, dp_line(world), {.reshard_after_forward = reshard});
  const Tensor x = random(world, Shape{1, 128});
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

TEST(FullyShard, HoldsFewWholeLayersAtATime) {
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

// --- what goes wrong ---

TEST(FullyShard, RefusesWhatItCannotShard) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = dp_line(world);
    const auto text_of = [](const std::function<void()>& call, ErrorKind kind) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), kind) << error.what();
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    const auto refused = [&](Module& module, const DeviceMesh& on,
                             const FullyShardOptions& options = {}) {
      return text_of([&] { fully_shard(module, on, options); }, ErrorKind::BadInput);
    };
    Layers model(world);
    std::string text = refused(model, DeviceMesh());
    EXPECT_CONTAINS(text, "the mesh is undefined");
    text = refused(model, init_device_mesh(world, {1, 2}, {"dp", "tp"}));
    EXPECT_CONTAINS(text, "(dp=1,tp=2) has 2 dimensions");
    text = refused(model, mesh, {.reduce = Reduce::Max});
    EXPECT_CONTAINS(text, "must be Sum or Avg");
    fully_shard(model.layers[0], mesh);
    text = refused(model.layers[0], mesh);
    EXPECT_CONTAINS(text, "Mlp 'layers.0' was sharded before, by a call of its own");
    fully_shard(model, mesh);
    text = refused(model.layers[1], mesh);
    EXPECT_CONTAINS(text, "Mlp 'layers.1' was sharded before, as a part of Layers");
    Mlp half(world);
    half.net1.weight = random(world, Shape{16, 10}, DType::F32);
    text = refused(half, mesh);
    EXPECT_CONTAINS(text, "'net1.bias' is f64[16], but others of its group are f32");
    Mlp tied(world);
    tied.net2.bias = tied.net1.bias = random(world, Shape{10});
    fully_shard(tied.net1, mesh);
    text = refused(tied, mesh);
    EXPECT_CONTAINS(text, "'net2.bias' (f64[10]) is tied to one");
    Mlp cut(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    co_await parallelize_module(cut, line(world), plan);
    text = text_of([&] { fully_shard(cut, mesh); }, ErrorKind::Unsupported);
    EXPECT_CONTAINS(text, "'net1.weight' is f64[16,10] S(0) on tp=2, and cannot be sharded along");
    Mlp summed(world);
    const DataParallel parallel(summed.parameters(), mesh, 0);
    text = refused(summed, mesh);
    EXPECT_CONTAINS(text, "whose gradients a DataParallel sums");
    EXPECT_FALSE(summed.net1.weight.is_distributed());
  });
}

TEST(FullyShard, RefusesABackwardThroughParametersThatHaveChanged) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool recomputes : {false, true}) {
      Layers model(world);
      shard_layers(model, dp_line(world), {});
      if (recomputes)
        for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].set_recompute();
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

TEST(FullyShard, CanBeUsedAgainAfterAForwardHasFailed) {
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

TEST(FullyShard, RunsHooksOfShardsAndRefusesThoseThatReplaceGradients) {
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

TEST(FullyShard, TellsRanksApartThatMissDifferentGradients) {
  std::string texts[2];
  WorldOptions options = test_options(2);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "fails a world";
  try {
    run_ranks(options, [](World& world) -> Task<void> {
      Odd model(world);
      fully_shard(model, dp_line(world));
      Tensor y = co_await model.forward(rows_of(world, 0, 0));
      if (world.rank() == 1) y = mul(y, 2);
      Tensor loss = mean(mul(y, y));
      model.frozen.set_requires_grad(world.rank() == 1);
      y = co_await model.forward(rows_of(world, 0, 0));
      co_await backward(mean(mul(y, y)));
      SGD optimizer(model.parameters(), {.lr = 0.1});
      co_await optimizer.step();
      co_await discard(model.forward(rows_of(world, 0, 0)));
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    EXPECT_CONTAINS(std::string(error.what()), "no gradient for parameter");
  }
}

Task<void> train_in_parts(World& world, std::uint64_t seed) {
  const Kind kind{
      .reshard = seed % 2 == 0, .recomputes = seed % 3 == 0, .parts = 1 + int(seed % 4 / 2)};
  Task<Trained> alike = trained(world, Way::Replicas, kind, 2);
  const Trained want = co_await std::move(alike);
  Task<Trained> sharded = trained(world, Way::Shards, kind, 2);
  const Trained got = co_await std::move(sharded);
  expect_same(got, want);
}

TEST(FullyShard, IsTheSameInEveryInterleaving) {
  const WorldOptions options = test_options(3);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "needs the simulation";
  const std::uint64_t seeds = test::number_of("--seeds", "COSHARD_SEEDS", 48);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto program = [seed](World& world) { return train_in_parts(world, seed); };
    EXPECT_NO_THROW(simulate(options, program, seed)) << seed;
  }
}
}  // namespace
}  // namespace coshard::testing
