// torchtitan's reports of gradients that lacked, or had twice, a sum over tp, as programs: what the
// same mistake does here, or what is right here without asking. Numbers are those of the reports.
#include "tests/styles/field_lists.h"

namespace coshard::testing {
namespace torchtitan_list {
namespace {

constexpr DType F64 = DType::F64;

// x sharded by features, w by rows; their product is a sum over ranks, the bias is not.
struct Biased {
  Tensor x, w, b;
};
Task<Tensor> learn(Biased leaves) {
  const Tensor y = add(matmul(leaves.x, leaves.w), leaves.b);
  Task<void> walk = backward(mean(mul(y, y)));
  co_await std::move(walk);
  co_return y.detach();
}

// #2106. Partial + Replicate: the bias was added by each rank, or the gradient of the product was
// summed once more.
TEST(TorchtitanList, AReplicatedBiasOnAPartialProduct) {
  for (const int ranks : {2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const DeviceMesh mesh = line(world);
      const Tensor x = random(world, {4, 6}), w = random(world, {6, 5}), b = random(world, {5});
      const Biased plain{leaf(x), leaf(w), leaf(b)};
      const Tensor want = co_await learn(plain);
      const Biased placed{leaf(x, mesh, Shard(1)), leaf(w, mesh, Shard(0)),
                          leaf(b, mesh, Replicate())};
      const Tensor y = co_await learn(placed);
      expect_close(y, want);
      expect_close(placed.x.grad(), plain.x.grad());
      expect_close(placed.w.grad(), plain.w.grad());
      expect_close(placed.b.grad(), plain.b.grad());
    });
}

// #4245, #4332. Experts add a bias to a term of a sum: tp times too much of it or, where each rank
// adds its tp-th part, a gradient that is tp times too small.
TEST(TorchtitanList, TheBiasOfARowwiseLayerCountsOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, mlp] = twins<Mlp>(world);
    const auto fill = [](Mlp& model) {
      const NoGradGuard quiet;
      fill_(model.net2.bias, 0.5);
    };
    fill(*plain);
    fill(*mlp);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    co_await parallelize_module(*mlp, line(world), plan);
    const Tensor x = random(world, {4, 10});
    co_await one_step(*plain, x);
    co_await one_step(*mlp, x);
    expect_same(*mlp, *plain);
  });
}
TEST(TorchtitanList, APartOfTheBiasOnEachRankHasAPartialGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor x = random(world, {4, 6}), w = random(world, {6, 5}), b = random(world, {5});
    const Biased plain{leaf(x), leaf(w), leaf(b)};
    const Tensor want = co_await learn(plain);
    const DTensor bias = leaf(b, mesh, Replicate());
    const Tensor term = matmul(part(world, x, 1), part(world, w, 0));
    const Tensor share = div(to_local(bias, Layout(Partial())), world.size());
    const DTensor y = from_local(add(term, share), mesh, Partial());
    co_await backward(mean(mul(y, y)));
    expect_close(y.detach(), want);
    expect_close(bias.grad(), plain.b.grad());
  });
}

// #2532. A norm's weight on (dp, tp), of which to_local() forgot tp.
Task<void> weigh(World& world, Tensor weight, std::optional<Layout> gradients) {
  const DeviceMesh mesh = weight.mesh();
  const DTensor x = distribute_tensor(counting(world, {4, 4, 6}), mesh, Layout(Shard(0), Shard(1)));
  const Tensor y = mul(x.to_local(), to_local(weight, gradients));
  const DTensor whole = from_local(y, mesh, Layout(Shard(0), Shard(1)));
  Task<void> walk = backward(mean(mul(whole, whole)));
  co_await std::move(walk);
  SGD optimizer({weight}, {.lr = 0.1});
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}
TEST(TorchtitanList, ALocalWeightWithoutThePlacementsOfItsGradient) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DTensor weight = leaf(random(world, {6}), mesh, Layout(Replicate(), Replicate()));
    const End end = co_await end_of(weigh(world, weight, std::nullopt));
    expect_told(end, "grad_placements");
    weight.set_grad({});
    const Layout half(Partial(), Replicate());  // dp alone
    const End forgot = co_await end_of(weigh(world, weight, half));
    expect_told(forgot, "grad_placements");
  });
}
TEST(TorchtitanList, ALocalWeightWithThePlacementsOfItsGradient) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Tensor values = random(world, {6});
    const Tensor plain = leaf(values);
    const Tensor y = mul(counting(world, {4, 4, 6}), plain);
    co_await backward(mean(mul(y, y)));
    const DTensor weight = leaf(values, mesh, Layout(Replicate(), Replicate()));
    co_await weigh(world, weight, Layout(Partial(), Partial()));
    expect_close(weight.grad(), plain.grad());
  });
}

// #4054. Experts sharded over tp within local_map; what lies below them is replicated.
struct Experts {
  Tensor x, gate, up, down;
};
std::vector<Tensor> expert(std::span<const Tensor> in) {
  return {matmul(relu(matmul(in[0], in[1])), in[2])};
}
Task<void> through_experts(Experts m, bool partial) {
  const std::vector<Tensor> inputs{matmul(m.x, m.gate), m.up, m.down};
  LocalMapOptions options;
  options.out_placements = {Layout(Partial())};
  if (partial) options.in_grad_placements = {Layout(Partial()), Layout(Shard(1)), Layout(Shard(0))};
  const Tensor y = local_map(expert, inputs, options)[0];
  Task<void> walk = backward(mean(mul(y, y)));
  co_await std::move(walk);
  SGD optimizer({m.gate, m.up, m.down}, {.lr = 0.1});
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}
Experts experts_on(const DeviceMesh& mesh, const Experts& values) {
  return {leaf(values.x, mesh, Replicate()), leaf(values.gate, mesh, Replicate()),
          leaf(values.up, mesh, Shard(1)), leaf(values.down, mesh, Shard(0))};
}
TEST(TorchtitanList, LocalMapOfShardedExpertsWithoutTheGradientsOfItsInput) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Experts values{random(world, {5, 3}), random(world, {3, 4}), random(world, {4, 6}),
                         random(world, {6, 4})};
    const Experts placed = experts_on(line(world), values);
    const End end = co_await end_of(through_experts(placed, false));
    expect_told(end, "grad_placements");
  });
}
TEST(TorchtitanList, LocalMapOfShardedExpertsWithTheGradientsOfItsInput) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Experts values{random(world, {5, 3}), random(world, {3, 4}), random(world, {4, 6}),
                         random(world, {6, 4})};
    const Experts plain{leaf(values.x), leaf(values.gate), leaf(values.up), leaf(values.down)};
    co_await through_experts(plain, false);
    const Experts placed = experts_on(line(world), values);
    co_await through_experts(placed, true);
    expect_close(placed.gate.grad(), plain.gate.grad());
    expect_close(placed.up.grad(), plain.up.grad());
    expect_close(placed.gate, plain.gate.detach());
  });
}

// A gate scores what sharded experts take, or what they give.
struct Moe : Module {
  Moe(World& world, bool scores_first)
      : scores_first(scores_first),
        gate(8, 1, world, kF64),
        up(8, 16, world, kF64),
        down(16, 8, world, {.bias = false, .dtype = F64, .init_std = 0.5}) {
    register_module("gate", gate);
    register_module("up", up);
    register_module("down", down);
  }
  Task<Tensor> run(Tensor x) override {
    const Tensor scores = co_await gate.forward(x);
    Tensor hidden = co_await up.forward(x);
    if (scores_first) hidden = mul(hidden, scores);
    const Tensor y = co_await down.forward(hidden);
    if (scores_first) co_return y;
    const Tensor term = mul(y, scores);
    if (!mesh.defined()) co_return term;
    co_return from_local(term, mesh, Partial()).full_tensor();
  }
  bool scores_first;
  DeviceMesh mesh;  // over which `down` leaves its output partial
  nn::Linear gate, up, down;
};
enum class Gate { Plain, Local, Partial };
Task<void> parallelize(Moe& moe, const DeviceMesh& mesh, Gate gate) {
  if (!moe.scores_first) moe.mesh = mesh;
  ParallelPlan plan;
  plan["up"] = ColwiseParallel{};
  plan["down"] = RowwiseParallel{};
  if (!moe.scores_first) plan["down"] = RowwiseParallel{.output_layouts = Partial()};
  if (gate == Gate::Local) plan["gate"] = NoParallel{.use_local_output = true};
  if (gate == Gate::Partial)
    plan["gate"] = NoParallel{.use_local_output = true, .local_output_grad_placements = Partial()};
  Task<void> done = parallelize_module(moe, mesh, plan);
  co_await std::move(done);
}

// #2387: the gate is replicated, its local scores meet activations of one rank. #2416: they meet
// terms that nobody has summed yet.
TEST(TorchtitanList, ARouterWhoseLocalScoresMeetShards) {
  for (const bool first : {true, false})
    on_ranks(2, [first](World& world) -> Task<void> {
      Moe moe(world, first);
      co_await parallelize(moe, line(world), Gate::Local);
      const End end = co_await end_of(one_step(moe, random(world, {4, 8})));
      expect_told(end, "grad_placements");
    });
}
TEST(TorchtitanList, ARouterWithoutAStyleBesideShardedExperts) {
  for (const bool first : {true, false})
    for (const bool clip : {true, false})
      expect_all_told(
          2,
          [first, clip](World& world) -> Task<void> {
            Moe moe(world, first);
            co_await parallelize(moe, line(world), Gate::Plain);
            co_await one_step(moe, random(world, {4, 8}), clip);
            log_along(line(world));
          },
          "gate.");
}
TEST(TorchtitanList, ARouterWhoseScoresHavePartialGradients) {
  for (const bool first : {true, false})
    on_ranks(2, [first](World& world) -> Task<void> {
      auto [plain, moe] = twins<Moe>(world, first);
      co_await parallelize(*moe, line(world), Gate::Partial);
      const Tensor x = random(world, {4, 8});
      co_await one_step(*plain, x, true);
      co_await one_step(*moe, x, true);
      expect_same(*moe, *plain);
    });
}
// #2416, its first case: each rank takes its own tokens, and its own experts, by its rank.
TEST(TorchtitanList, ARouterWhoseScoresAreCutByRank) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear gate(8, 1, world, kF64);
    co_await parallelize_module(gate, line(world), NoParallel{.use_local_output = true});
    const Tensor x = random(world, {4, 8});
    const auto train = [&]() -> Task<void> {
      const Tensor scores = co_await gate.forward(x);
      const Tensor mine =
          mul(part(world, x, 0), slice(scores, 0, 2 * world.rank(), 2 * world.rank() + 2));
      co_await backward(sum(mul(mine, mine)));
      SGD optimizer(gate.parameters(), {.lr = 0.1});
      co_await optimizer.step();
    };
    const End end = co_await end_of(train());
    expect_told(end, "grad_placements");
  });
}

}  // namespace
}  // namespace torchtitan_list
}  // namespace coshard::testing
