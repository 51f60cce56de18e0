#include "profiling/bench/woven.h"

#include <algorithm>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tensor/tensors.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/mlp.h>
#include <coshard/styles/nn/sequential.h>
#include <coshard/styles/parallelize.h>
#include <coshard/styles/woven.h>
#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

constexpr std::int64_t kDim = 512, kFfn = 1024;
constexpr int kLayers = 4;
// An all_reduce after each layer in forward, and before each in backward.
constexpr int kReductions = 2 * kLayers;

struct MlpStack {
  MlpStack(World& world, std::int64_t rows, std::int64_t ffn)
      : x(randn(world.device(), Shape{rows, kDim}).set_requires_grad(true)),
        gradient(randn(world.device(), Shape{rows, kDim})) {
    for (int i = 0; i < kLayers; ++i)
      model.add<nn::MLP>(std::to_string(i), nn::MLPOptions{.dim = kDim, .ffn = ffn}, world);
  }
  nn::Sequential model;
  Tensor x, gradient;
};

Task<void> parallelize(World& world, MlpStack& stack) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  ParallelPlan plan;
  plan["*"] =
      PrepareModuleInput{.input_layouts = Replicate(), .desired_input_layouts = Replicate()};
  plan["*.w[13]"] = ColwiseParallel{};
  plan["*.w2"] = RowwiseParallel{};
  Task<void> applying = parallelize_module(stack.model, mesh, plan);
  co_await std::move(applying);
}

Task<void> step_of(MlpStack& stack, int parts) {
  stack.model.zero_grad();
  stack.x.set_grad({});
  Task<Tensor> forward = woven(stack.model, parts).forward(stack.x);
  const Tensor y = co_await std::move(forward);
  Task<void> walk = backward(y, stack.gradient);
  co_await std::move(walk);
  Task<void> arrived = arrival_of(Tensors(stack.x.grad()));
  co_await std::move(arrived);
}

Task<void> measure(World& world, std::int64_t rows, int rounds, std::vector<ScheduleRound>& found) {
  MlpStack stack(world, rows, kFfn);
  MlpStack alone(world, rows, kFfn / world.size());  // what a rank computes
  Task<void> cutting = parallelize(world, stack);
  co_await std::move(cutting);
  for (int i = -2; i < rounds; ++i) {
    ScheduleRound round;
    Task<double> a = time_of(world, step_of(stack, 1));
    round.plain_ms = co_await std::move(a);
    Task<double> b = time_of(world, step_of(stack, 2));
    round.overlapped_ms = co_await std::move(b);
    Task<double> c = time_of(world, step_of(alone, 1));
    round.compute_ms = co_await std::move(c);
    if (i >= 0 && world.rank() == 0) found.push_back(round);
  }
}

std::vector<ScheduleRound> rounds_of(const WorldOptions& world, std::int64_t rows, int rounds) {
  std::vector<ScheduleRound> found;
  run_ranks(world, [&](World& rank) { return measure(rank, rows, rounds, found); });
  return found;
}

// A link that carries all of a step's reductions in `ms`.
Link link_for(int ranks, std::int64_t rows, double ms) {
  const double sent = 2.0 * static_cast<double>(rows * kDim * 4) * (ranks - 1) / ranks;
  return {0, kReductions * sent / (ms * 1e3)};
}

}  // namespace

void measure_woven(Report& report, const OverlapOptions& options, int ranks) {
  WorldOptions world = options.world;
  world.ranks = ranks;
  world.threads = 1;
  std::int64_t rows = 64;
  const double first_ms = compute_ms_of(rounds_of(world, rows, 3)) / kReductions;
  rows *= std::max<std::int64_t>(1, static_cast<std::int64_t>(options.compute_ms / first_ms));
  const std::vector<ScheduleRound> without_link = rounds_of(world, rows, options.rounds);
  const double compute_ms = compute_ms_of(without_link);
  world.link = link_for(ranks, rows, compute_ms * (ranks - 1) / ranks);
  // Nothing is left to hide the last reduction of a pass.
  add_schedule(report, "woven", ranks, rounds_of(world, rows, options.rounds), without_link,
               1 - 1.0 / kReductions - 0.03);
}

}  // namespace coshard::bench
