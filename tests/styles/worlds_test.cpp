// Whole programs in branches, held to what the same lines give one after another.
#include <cmath>
#include <functional>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

WorldOptions patient(int ranks, int rank_threads = 0) {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.rank_threads = rank_threads;
  options.timeout = 20s;
  return options;
}
WorldOptions linked(int ranks) {
  WorldOptions options = patient(ranks);
  options.link = Link{100, 1'000};
  options.progress_threads = 1;
  return options;
}
void run_everywhere(int ranks, const Program& program) {
  EXPECT_NO_THROW(run_ranks(patient(ranks), program));
  EXPECT_NO_THROW(run_ranks(patient(ranks, 2), program));
  EXPECT_NO_THROW(run_ranks(linked(ranks), program));
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_NO_THROW(simulate(patient(ranks), program, seed)) << seed;
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << i;
}
Task<std::vector<double>> whole(DTensor x) {
  DTensor full = co_await x.detach().redistribute(Replicate());
  co_return to_local(full).to_vector();
}
ParallelPlan mlp_plan() {
  ParallelPlan plan;
  plan["w[13]"] = ColwiseParallel{};
  plan["w2"] = RowwiseParallel{};
  return plan;
}

// --- two trainings at once ---

// All losses, then the last weight.
Task<std::vector<double>> trained(World& world, std::uint64_t seed, int steps, bool recomputes) {
  manual_seed(seed);
  nn::MLP mlp({.dim = 8, .ffn = 32}, world);
  Task<void> cutting = parallelize_module(mlp, line(world), mlp_plan());
  co_await std::move(cutting);
  if (recomputes) mlp.set_recompute();
  AdamW optimizer(mlp.parameters(), {.lr = 1e-2});
  std::vector<double> figures;
  for (int step = 0; step < steps; ++step) {
    const Tensor x = randn(world.device(), {4, 8});
    Task<Tensor> forward = mlp.forward(x);
    const Tensor y = co_await std::move(forward);
    const Tensor error = dropout(y, 0.2) - x;
    const Tensor loss = mean(error * error);
    if (step % 3 == 2) {
      const NoGradGuard no_grad;
      Task<Tensor> again = mlp.forward(x);
      const Tensor other = co_await std::move(again);
      EXPECT_FALSE(other.requires_grad());
    }
    optimizer.zero_grad();
    Task<void> walk = backward(loss);
    co_await std::move(walk);
    auto clipping = clip_grad_norm(mlp.parameters(), 0.5);
    co_await std::move(clipping);
    Task<void> stepping = optimizer.step();
    co_await std::move(stepping);
    figures.push_back(loss.item());
  }
  Task<std::vector<double>> weights = whole(mlp.w2.weight);
  for (const double weight : co_await std::move(weights)) figures.push_back(weight);
  co_return figures;
}
Task<void> trainings(World& world) {
  Task<std::vector<double>> first = trained(world, 1, 6, false);
  const std::vector<double> one = co_await std::move(first);
  Task<std::vector<double>> second = trained(world, 2, 8, true);
  const std::vector<double> other = co_await std::move(second);
  auto all =
      when_all(trained(world, 1, 6, false), trained(world, 2, 8, true), trained(world, 1, 6, true));
  const auto [a, b, c] = co_await std::move(all);
  expect_near(a, one);
  expect_near(b, other);
  expect_near(c, one);
}
TEST(Branches, TrainModelsOfTheirOwnAsIfOneAfterAnother) { run_everywhere(2, trainings); }

// --- one model, whose gradients add up over branches ---

Task<void> micro_batch(nn::MLP& mlp, Tensor x) {
  Task<Tensor> forward = mlp.forward(x);
  const Tensor y = co_await std::move(forward);
  const Tensor error = y - x;
  Task<void> walk = backward(mean(error * error));
  co_await std::move(walk);
}
Task<std::vector<double>> gradients(nn::MLP& mlp) {
  std::vector<double> all;
  for (const Tensor& weight : {mlp.w1.weight, mlp.w2.weight, mlp.w3.weight}) {
    Task<std::vector<double>> one = whole(weight.grad());
    for (const double value : co_await std::move(one)) all.push_back(value);
  }
  co_return all;
}
Task<void> micro_batches(World& world) {
  manual_seed(4);
  nn::MLP mlp({.dim = 8, .ffn = 16}, world);
  Task<void> cutting = parallelize_module(mlp, line(world), mlp_plan());
  co_await std::move(cutting);
  std::vector<Tensor> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(randn(world.device(), {3, 8}));
  for (const Tensor& x : batches) {
    Task<void> one = micro_batch(mlp, x);
    co_await std::move(one);
  }
  Task<std::vector<double>> in_turn = gradients(mlp);
  const std::vector<double> want = co_await std::move(in_turn);
  for (const bool recomputes : {false, true}) {
    if (recomputes) mlp.set_recompute();
    for (const Tensor& parameter : mlp.parameters()) parameter.set_grad({});
    std::vector<Task<void>> tasks;
    for (const Tensor& x : batches) tasks.push_back(micro_batch(mlp, x));
    Task<void> all = when_all(std::move(tasks));
    co_await std::move(all);
    Task<std::vector<double>> woven = gradients(mlp);
    expect_near(co_await std::move(woven), want);
  }
}
TEST(Branches, WalkBackwardsThroughOneModelAndItsGradientsAddUp) {
  run_everywhere(2, micro_batches);
}

// --- recomputation of a module that is woven itself ---

struct Woven : Module {
  explicit Woven(World& world) : a(8, 8, world), b(8, 8, world) {
    register_module("a", a);
    register_module("b", b);
  }
  Task<Tensor> run(Tensor x) override {
    auto both = when_all(a.forward(x), b.forward(x));
    auto [p, q] = co_await std::move(both);
    co_return p* q;
  }
  nn::Linear a, b;
};
Task<std::vector<double>> input_gradient(World& world, bool recomputes) {
  manual_seed(3);
  Woven woven(world);
  ParallelPlan plan;
  plan["[ab]"] = ColwiseParallel{.output_layouts = Replicate()};
  Task<void> cutting = parallelize_module(woven, line(world), plan);
  co_await std::move(cutting);
  if (recomputes) woven.set_recompute();
  Tensor x = randn(world.device(), {3, 8});
  x.set_requires_grad(true);
  Task<Tensor> forward = woven.forward(x);
  const Tensor y = co_await std::move(forward);
  Task<void> walk = backward(sum(y * y));
  co_await std::move(walk);
  co_return x.grad().to_vector();
}
Task<void> recomputes_woven(World& world) {
  Task<std::vector<double>> plain = input_gradient(world, false);
  const std::vector<double> want = co_await std::move(plain);
  auto all = when_all(input_gradient(world, true), input_gradient(world, false),
                      input_gradient(world, true));
  const auto [a, b, c] = co_await std::move(all);
  for (const auto& got : {a, b, c}) expect_near(got, want);
}
TEST(Recompute, OfAModuleWithBranchesOfItsOwnInBranches) { run_everywhere(2, recomputes_woven); }

// --- meshes with outsiders ---

// Across four meshes that share ranks or do not, and back through all of them.
Task<void> around(World& world) {
  const DeviceMesh a = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"a"});
  const DeviceMesh b = DeviceMesh::from_ranks(world, {2, 3}, {2}, {"b"});
  const DeviceMesh c = DeviceMesh::from_ranks(world, {1, 2}, {2}, {"c"});
  const DeviceMesh all = line(world);
  Tensor x = rand(a, Layout(Shard(0)), {5, 3}, DType::F64);
  x.set_requires_grad(true);
  const DTensor on_b = co_await redistribute(x, b, Layout(Shard(1)));
  const DTensor on_c = co_await redistribute(on_b, c, Layout(Replicate()));
  const DTensor on_all = co_await redistribute(on_c, all, Layout(Shard(0)));
  const DTensor squares = sum(on_all * on_all);
  const DTensor loss = co_await squares.redistribute(Replicate());
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  const DTensor gradient = co_await redistribute(x.grad(), all, Layout(Replicate()));
  const DTensor values = co_await redistribute(x.detach(), all, Layout(Replicate()));
  std::vector<double> want = to_local(values).to_vector();
  for (double& value : want) value *= 2;
  expect_near(to_local(gradient).to_vector(), want);
}
Task<void> around_twice_at_once(World& world) {
  Task<void> both = when_all(around(world), around(world));
  co_await std::move(both);
}
TEST(Transfer, AroundFourMeshesAndBackInTwoBranches) { run_everywhere(4, around_twice_at_once); }

Task<double> sum_on(World& world, DeviceMesh mesh, double value) {
  const DTensor term = from_local(full(world.device(), {1}, value, DType::F64), mesh, Partial());
  const DTensor total = co_await term.redistribute(Replicate());
  co_return mesh.contains_this_rank() ? total.item() : 0;
}
Task<void> sums_on(World& world, DeviceMesh mesh, int count) {
  for (int i = 0; i < count; ++i) {
    Task<double> one = sum_on(world, mesh, 1);
    co_await std::move(one);
  }
}
Task<void> sum_then_throw(World& world, DeviceMesh mesh) {
  Task<double> one = sum_on(world, mesh, 1);
  co_await std::move(one);
  throw 9;
}
Task<void> cancelled_beside_outsiders(World& world) {
  const DeviceMesh a = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"a"});
  const DeviceMesh b = DeviceMesh::from_ranks(world, {1, 2}, {2}, {"b"});
  const DeviceMesh all = line(world);
  for (int round = 0; round < 10; ++round) {
    Task<void> three =
        when_all(sums_on(world, all, 7), sum_then_throw(world, a), sums_on(world, b, 3));
    EXPECT_THROW(co_await std::move(three), int);
    Task<double> after = sum_on(world, all, round);
    EXPECT_EQ(co_await std::move(after), 3 * round);
    Task<double> some = sum_on(world, a, round);
    const double on_some = co_await std::move(some);
    EXPECT_EQ(on_some, world.rank() < 2 ? 2 * round : 0);
  }
}
TEST(Cancelled, BranchesOfMeshesWithOutsidersAndTheProgramGoesOn) {
  run_everywhere(3, cancelled_beside_outsiders);
}

// --- copies of one redistribution ---

Task<double> awaits_twice(Redistribution copy) {
  co_await copy;
  const DTensor again = co_await copy;
  co_return to_local(again).to_vector().front();
}
Task<int> takes_shards(Redistribution copy) {
  int count = 0;
  while (co_await copy.next_shard()) ++count;
  co_return count;
}
Task<void> shares_flights(World& world) {
  const DeviceMesh mesh = line(world);
  for (int i = 0; i < 10; ++i) {
    const Redistribution sum =
        from_local(full(world.device(), {4}, i), mesh, Partial()).redistribute(Replicate());
    const Redistribution rows =
        from_local(full(world.device(), {4}, i), mesh, Shard(0)).redistribute(Replicate());
    auto all = when_all(awaits_twice(sum), takes_shards(rows), awaits_twice(sum),
                        takes_shards(rows), awaits_twice(rows));
    const auto [a, b, c, d, e] = co_await std::move(all);
    EXPECT_EQ(a, i * world.size());
    EXPECT_EQ(c, a);
    EXPECT_EQ(b, world.size());
    EXPECT_EQ(d, b);
    EXPECT_EQ(e, i);
  }
}
TEST(Redistribution, CopiesAreAwaitedAndTakenShardByShardInSiblings) {
  run_everywhere(3, shares_flights);
}

// --- giving up in the middle ---

Task<void> one_step(World& world, Tensor leaf) {
  const DTensor term = from_local(leaf * 2.0, line(world), Partial());
  const DTensor total = co_await term.redistribute(Replicate());
  Task<void> walk = backward(to_local(sum(total * total)));
  co_await std::move(walk);
}
Task<void> gives_up_a_step_then_takes_it(World& world) {
  Tensor leaf = ones(world.device(), {4});
  leaf.set_requires_grad(true);
  Task<void> late = with_deadline(
      100ms, "step", [&world, leaf](std::stop_token) { return one_step(world, leaf); });
  EXPECT_THROW(co_await std::move(late), Error);
  EXPECT_FALSE(leaf.grad().defined());
  Task<void> step = one_step(world, leaf);
  co_await std::move(step);
  const double n = world.size();
  expect_near(leaf.grad().to_vector(), std::vector<double>(4, 8 * n));
}
TEST(Deadline, AStepThatAllRanksGiveUpLeavesNothingOnTheNext) {
  WorldOptions options = patient(2);
  options.link = Link{400'000, 1'000};
  EXPECT_NO_THROW(run_ranks(options, gives_up_a_step_then_takes_it));
}

// --- errors ---

constexpr int kBadLine = __LINE__ + 3;
Task<void> asks_for_a_dimension_that_is_none(World& world) {
  const DTensor x = rand(line(world), Layout(Shard(0)), {4, 4});
  const Redistribution refused = x.redistribute(Shard(5));
  co_await refused;
}
TEST(Failure, OfACallNamesTheUsersLine) {
  std::string told;
  WorldOptions options = patient(2);
  options.on_failure = [&](const Failure& failure) { told = failure.line(); };
  EXPECT_THROW(run_ranks(options, asks_for_a_dimension_that_is_none), Error);
  EXPECT_NE(told.find(str_cat("worlds_test.cpp:", kBadLine)), std::string::npos) << told;
}

TEST(Factories, RefuseANegativeSizeInEveryLayout) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    EXPECT_THROW(zeros(mesh, Layout(Replicate()), {-4, 4}), Error);
    EXPECT_THROW(zeros(mesh, Layout(Shard(1)), {-4, 4}), Error);
    EXPECT_THROW(zeros(mesh, Layout(Shard(0)), {-4, 4}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
