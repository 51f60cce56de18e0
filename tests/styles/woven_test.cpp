// Parts of a batch that take turns: values and gradients as of the whole batch, what runs under
// what, and the order of issue.
#include <coshard/styles/woven.h>

#include <coshard/runtime/launch/simulate.h>
#include "tests/styles/support.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

// Two MLPs, one after the other: two collectives.
struct TwoMlps : Module {
  explicit TwoMlps(World& world) : low(world), high(world) {
    register_module("low", low);
    register_module("high", high);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor between = co_await low.forward(std::move(x));
    co_return co_await high.forward(std::move(between));
  }
  Mlp low, high;
};
ParallelPlan two_mlps_plan() {
  ParallelPlan plan;
  plan["*.net1"] = ColwiseParallel{};
  plan["*.net2"] = RowwiseParallel{};
  return plan;
}

// What one step gave.
struct StepInParts {
  Tensor output, input_grad;
  std::vector<Tensor> gradients;
  Issued forward;
};
// Of the sum of squares; parts 0: the module itself.
Task<StepInParts> step_in_parts(World& world, Module& module, Tensor x, int parts) {
  module.zero_grad();
  if (is_floating(x.dtype())) x = x.detach().set_requires_grad(true);
  CountingObserver counter(world);
  Task<Tensor> forward = parts == 0 ? module.forward(x) : woven(module, parts).forward(x);
  StepInParts stepped;
  stepped.output = co_await std::move(forward);
  stepped.forward = take(counter);
  Task<void> walk = backward(sum(mul(stepped.output, stepped.output)));
  co_await std::move(walk);
  for (const Tensor& p : module.parameters()) {
    const Tensor all = p.grad().is_distributed() ? full_tensor(p.grad()) : p.grad();
    stepped.gradients.push_back(all.detach());
  }
  if (is_floating(x.dtype())) stepped.input_grad = x.grad();
  co_return stepped;
}

void expect_equal_steps(const StepInParts& got, const StepInParts& want) {
  const auto whole = [](const Tensor& x) {
    return x.is_distributed() ? full_tensor(x.detach()) : x.detach();
  };
  expect_close(got.output, whole(want.output), 1e-13);
  EXPECT_EQ(got.output.is_distributed(), want.output.is_distributed());
  if (want.output.is_distributed()) {
    EXPECT_EQ(got.output.layout(), want.output.layout());
  }
  if (want.input_grad.defined()) expect_close(got.input_grad, whole(want.input_grad), 1e-13);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t i = 0; i < want.gradients.size(); ++i)
    expect_close(got.gradients[i], want.gradients[i], 1e-13);
}

TEST(Woven, GivesTheValuesAndGradientsOfTheWholeBatch) {
  for (const int ranks : {1, 2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      TwoMlps stack(world);
      co_await parallelize_module(stack, line(world), two_mlps_plan());
      for (const std::int64_t batch : {4, 7}) {  // 7: parts of 4 and 3 rows
        const Tensor x = random(world, Shape{batch, 10});
        const StepInParts whole = co_await step_in_parts(world, stack, x, 0);
        for (const int parts : {1, 2, 3}) {
          const StepInParts got = co_await step_in_parts(world, stack, x, parts);
          expect_equal_steps(got, whole);
          EXPECT_EQ(got.forward, (Issued{.all_reduce = parts * whole.forward.all_reduce}));
        }
      }
    });
}

TEST(Woven, TrainsATransformerUnderItsPlans) {
  for (const bool sequence_parallel : {false, true})
    for (const Overlap overlap : {Overlap::Off, Overlap::Always})
      for (const bool recomputes : {false, true})
        on_ranks(2, [=](World& world) -> Task<void> {
          nn::TransformerConfig config = tiny_transformer();
          config.dtype = DType::F64;
          nn::Transformer model(config, world);
          const ParallelizeOptions options{.overlap = overlap};
          co_await parallelize_module(model, line(world), nn::transformer_plan(sequence_parallel),
                                      options);
          for (std::size_t i = 0; i < model.layers.size(); ++i)
            model.layers[i].set_recompute(recomputes);
          const Tensor tokens = integers(world, Shape{3, config.seq}, config.vocab);
          const StepInParts whole = co_await step_in_parts(world, model, tokens, 0);
          const StepInParts got = co_await step_in_parts(world, model, tokens, 2);
          expect_equal_steps(got, whole);
        });
}

TEST(Woven, CutsTheRowsThatEachRankHolds) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "ep"});
    Mlp mlp(world);
    distribute_module(mlp, mesh);
    const Tensor full = random(world, Shape{12, 10});
    for (const Layout& layout : {Layout(Shard(0), Replicate()), Layout(Shard(0), Shard(0)),
                                 Layout(Replicate(), Replicate())}) {
      const DTensor x = distribute_tensor(full, mesh, layout);
      const StepInParts whole = co_await step_in_parts(world, mlp, x, 0);
      const StepInParts got = co_await step_in_parts(world, mlp, x, 2);
      expect_equal_steps(got, whole);
    }
  });
}

TEST(Woven, IsEqualToTheBitWhereRowsDoNotMix) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Sequential model;
    model.add<nn::RMSNorm>("norm", 24, world);
    model.add<nn::GELU>("gelu");
    const Tensor x = random(world, Shape{5, 24}, DType::F32);
    const Tensor whole = co_await model.forward(x);
    const Tensor got = co_await woven(model).forward(x);
    EXPECT_EQ(got.to_vector(), whole.to_vector());
  });
}

TEST(Woven, GivesWhatHasOneRowWholeToEachPart) {
  on_ranks(1, [](World& world) -> Task<void> {
    Pair pair;
    const Tensor x = counting(world, {4, 2}), scale = counting(world, {1, 2});
    const NoGradGuard no_grad;
    Inputs inputs(x);
    inputs.keyword("y", x);
    const Outputs both = co_await woven(pair).call(inputs);
    EXPECT_EQ(both.at(0).to_vector(), x.to_vector());
    EXPECT_EQ(both.at(1).to_vector(), x.to_vector());
    Outputs seen;
    pair.add_pre_hook([&](Module&, Inputs& given) { seen.push_back(given.get(1, "y")); });
    Inputs shared(x, scale);
    const std::string text = co_await error_of(discard(woven(pair).call(shared)));
    EXPECT_CONTAINS(text, "each rank has 1 rows, for 2 rows of");  // the module gives it back
    EXPECT_EQ(seen.at(1).to_vector(), scale.to_vector());
  });
}

TEST(Woven, DrawsForEachPartFromStreamsOfItsOwn) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Dropout drop(0.5);
    const Tensor x = ones(world.device(), Shape{2, 64});
    const RandomState before = random_state();
    const Tensor first = co_await woven(drop).forward(x);
    EXPECT_EQ(random_state().next_stream, before.next_stream + 1);
    set_random_state(before);
    const Tensor again = co_await woven(drop).forward(x);
    EXPECT_EQ(first.to_vector(), again.to_vector());
    EXPECT_NE(first[0].to_vector(), first[1].to_vector());
    const DTensor ranks = from_local(first, line(world), Shard(0));
    const Tensor all = full_tensor(ranks);
    EXPECT_EQ(slice(all, 0, 0, 2).to_vector(), slice(all, 0, 2, 4).to_vector());
  });
}

TEST(Woven, RefusesWhatItCannotCutOrPutTogether) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    Pair pair;
    const auto text_of = [](Module& module, Inputs inputs, int parts) {
      return error_of(discard(woven(module, parts).call(std::move(inputs))));
    };
    const Tensor x = random(world, Shape{4, 10});
    EXPECT_THROW(woven(mlp, 0), Error);
    std::string text = co_await text_of(mlp, Inputs(x), 5);
    EXPECT_CONTAINS(text, "of f64[4,10] each rank has 4 rows, too few for 5 parts");
    text = co_await text_of(mlp, Inputs(random(world, Shape{1, 10})), 2);
    EXPECT_CONTAINS(text,
                    "no input with at least 2 rows to split into 2 parts; the first is f64[1,10]");
    text = co_await text_of(pair, Inputs(x, random(world, Shape{3, 10})), 2);
    EXPECT_CONTAINS(text, "of f64[3,10] each rank has 3 rows, but of f64[4,10] it has 4");
    const DTensor uneven = distribute_tensor(random(world, Shape{5, 10}), line(world), Shard(0));
    text = co_await text_of(pair, Inputs(uneven), 2);
    EXPECT_CONTAINS(text, "the 5 rows of f64[5,10] S(0) on tp=2 are not divisible by their 2");
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{.output_layouts = Shard(0)};  // other rows to each rank
    co_await parallelize_module(mlp, line(world), plan);
    text = co_await text_of(mlp, Inputs(x), 2);
    EXPECT_CONTAINS(text, "each rank has 1 rows, for 2 rows of f64[4,10]");
  });
}

// --- what runs under what ---

// What this rank did, in its order.
class OrderLog final : public Observer {
 public:
  explicit OrderLog(World& world) : world_(world) { world.add_observer(this); }
  ~OrderLog() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t now) override {
    under_way_[event.id] = {now, -1};
    order.push_back(
        str_cat(to_string(event.kind), " of ", event.bytes, " bytes for ", event.label));
  }
  void ready(const CommEvent& event, std::int64_t, std::int64_t done, std::int64_t) override {
    under_way_[event.id].end = done;
  }
  void computed(std::string_view, ComputeClass what, std::int64_t begin,
                std::int64_t end) override {
    if (what != ComputeClass::Gemm) return;
    products_.push_back({begin, end});
    ++products;
    under_collectives +=
        std::ranges::any_of(under_way_, [](const auto& each) { return each.second.end < 0; });
  }
  // Products during which a transfer was under way, by the clock.
  std::ptrdiff_t intersecting() const {
    return std::ranges::count_if(products_, [this](const Span& product) {
      return std::ranges::any_of(under_way_, [&product](const auto& collective) {
        return product.begin < collective.second.end && collective.second.begin < product.end;
      });
    });
  }

  int products = 0, under_collectives = 0;  // between issue and what awaits it
  std::vector<std::string> order;

 private:
  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  World& world_;
  std::map<std::uint64_t, Span> under_way_;
  std::vector<Span> products_;
};

// Forward, and backward to the input alone: two products for each MLP and part in either.
struct SeenInParts {
  int forward = 0, backward = 0;    // products between issue and await of a collective
  std::ptrdiff_t intersecting = 0;  // those that ran during a transfer
  std::vector<std::string> order;
};
Task<SeenInParts> seen_in_parts(World& world, int parts) {
  TwoMlps stack(world);
  Task<void> cutting = parallelize_module(stack, line(world), two_mlps_plan());
  co_await std::move(cutting);
  for (Tensor p : stack.parameters()) p.set_requires_grad(false);
  const Tensor x = random(world, Shape{4, 10}).set_requires_grad(true);
  OrderLog log(world);
  Task<Tensor> forward = woven(stack, parts).forward(x);
  const Tensor y = co_await std::move(forward);
  SeenInParts seen;
  seen.forward = std::exchange(log.under_collectives, 0);
  EXPECT_EQ(std::exchange(log.products, 0), 4 * parts);
  Task<void> walk = backward(y, y.detach());
  co_await std::move(walk);
  Task<void> arrived = arrival_of(Tensors(x.grad()));
  co_await std::move(arrived);
  EXPECT_EQ(log.products, 4 * parts);
  seen.backward = log.under_collectives;
  seen.intersecting = log.intersecting();
  seen.order = log.order;
  co_return seen;
}

// All products but the first two, before which nothing was issued.
TEST(Woven, ComputesOnePartUnderTheCollectivesOfTheOther) {
  for (const int ranks : {2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const SeenInParts two = co_await seen_in_parts(world, 2);
      EXPECT_EQ(two.forward, 6);
      EXPECT_EQ(two.backward, 6);
      const SeenInParts one = co_await seen_in_parts(world, 1);  // the control
      EXPECT_EQ(one.forward, 0);
      EXPECT_EQ(one.backward, 0);
    });
}

// Of a Transformer's forward: all products, and those between issue and await of a collective.
Task<std::pair<int, int>> products_in_parts(World& world, bool sequence_parallel, int parts) {
  const NoGradGuard no_grad;
  nn::TransformerConfig config = tiny_transformer();
  config.layers = 4;
  nn::Transformer model(config, world);
  const ParallelPlan plan = nn::transformer_plan(sequence_parallel);
  Task<void> cutting = parallelize_module(model, line(world), plan, {.overlap = Overlap::Off});
  co_await std::move(cutting);
  const Tensor tokens = integers(world, Shape{4, config.seq}, config.vocab);
  const auto waits = waits_in_place();
  const OrderLog log(world);
  Task<Tensor> forward = woven(model, parts).forward(tokens);
  const Tensor logits = co_await std::move(forward);
  EXPECT_EQ(waits_in_place(), waits);
  co_return {log.products, log.under_collectives};
}

TEST(Woven, ComputesTheBlocksOfATransformerUnderItsCollectives) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool sequence_parallel : {false, true}) {
      const auto [all, hidden] = co_await products_in_parts(world, sequence_parallel, 2);
      EXPECT_EQ(hidden, all - 1);  // the last has no other part to run beside
      const auto [unwoven, none] = co_await products_in_parts(world, sequence_parallel, 1);
      EXPECT_EQ(none, 0);
      EXPECT_EQ(unwoven * 2, all);
    }
  });
}

TEST(Woven, IssuesInOneOrderOnAllRanks) {
  constexpr int kRanks = 4;
  std::vector<std::string> orders[kRanks];
  on_ranks(kRanks, [&](World& world) -> Task<void> {
    const SeenInParts seen = co_await seen_in_parts(world, 2);
    orders[world.rank()] = seen.order;
  });
  EXPECT_EQ(orders[0].size(), 8U);
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(orders[rank], orders[0]) << rank;
}

// On a link that is slower until even a busy machine computes during a transfer.
TEST(Woven, ComputesDuringTransfers) {
  if (!on_cpu() || test_options(2).communicator != "local") GTEST_SKIP() << "needs a link";
  std::ptrdiff_t least = 0;
  for (int ms = 20; ms <= 2000 && least < 12; ms *= 3) {
    std::ptrdiff_t seen[2] = {};
    WorldOptions options = test_options(2);
    options.link = parse_link(str_cat(ms, "ms,100GB/s"));
    run_ranks(options, [&](World& world) -> Task<void> {
      const SeenInParts two = co_await seen_in_parts(world, 2);
      seen[world.rank()] = two.intersecting;
      const SeenInParts one = co_await seen_in_parts(world, 1);
      EXPECT_EQ(one.intersecting, 0);
    });
    least = std::min(seen[0], seen[1]);
  }
  EXPECT_EQ(least, 12);
}

Task<void> whole_and_in_parts(World& world, Overlap overlap) {
  TwoMlps stack(world);
  Task<void> cutting =
      parallelize_module(stack, line(world), two_mlps_plan(), {.overlap = overlap});
  co_await std::move(cutting);
  const Tensor x = random(world, Shape{5, 10});
  Task<StepInParts> unwoven = step_in_parts(world, stack, x, 0);
  const StepInParts whole = co_await std::move(unwoven);
  Task<StepInParts> stepping = step_in_parts(world, stack, x, 2);
  const StepInParts got = co_await std::move(stepping);
  expect_equal_steps(got, whole);
}

// Every other one with linear layers that overlap by themselves.
TEST(Woven, IsTheSameInEveryInterleaving) {
  const WorldOptions options = test_options(2);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "needs the simulation";
  const std::uint64_t first = testing::first_seed();
  const std::uint64_t count = testing::number_of("--seeds", "COSHARD_SEEDS", 200);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Overlap overlap = seed % 2 == 0 ? Overlap::Off : Overlap::Always;
    const auto program = [=](World& world) { return whole_and_in_parts(world, overlap); };
    EXPECT_NO_THROW(simulate(options, program, seed)) << testing::how_to_replay(seed);
  }
}

// --- when a part fails ---

struct FailsOnSecondPart : TwoMlps {
  using TwoMlps::TwoMlps;
  Task<Tensor> run(Tensor x) override {
    const bool fails = ++calls == 2;
    Tensor between = co_await low.forward(std::move(x));
    if (fails) between = reshape(between, Shape{7, 7});
    co_return co_await high.forward(std::move(between));
  }
  int calls = 0;
};

TEST(Woven, FailsAsAWholeAndCanBeUsedAgain) {
  on_ranks(2, [](World& world) -> Task<void> {
    FailsOnSecondPart stack(world);
    co_await parallelize_module(stack, line(world), two_mlps_plan());
    const Tensor x = random(world, Shape{4, 10});
    const std::string text = co_await error_of(discard(woven(stack).forward(x)));
    EXPECT_CONTAINS(text, "[7,7]");
    const Tensor whole = co_await stack.forward(x);
    const Tensor got = co_await woven(stack).forward(x);
    expect_close(got, whole);
  });
}

}  // namespace
}  // namespace coshard::testing
