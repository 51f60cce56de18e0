#include <fmt/format.h>

#include <random>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/peer.h"
#include "profiling/bench/timed.h"
#include "profiling/bench/transformer_step.h"

namespace coshard::bench {
namespace {

constexpr int kWarmUp = 3;

struct Measured {
  std::vector<double> step_ms;
  double gemm_share = 0, hidden_share = 0;
  int threads = 0;  // of each rank
};

Tensor random_bytes(World& world, const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = static_cast<double>(generator() % kVocab);
  return Tensor::from_values(world.device(), shape, DType::I64, values);
}

// The PyTorch program's step: zero_grad, forward, loss, backward, AdamW, and the loss read on the
// host.
Task<void> step(nn::Transformer& model, AdamW& optimizer, Tensor tokens, Tensor targets) {
  optimizer.zero_grad();
  Task<Tensor> forward = loss_of(model, std::move(tokens), std::move(targets));
  Tensor loss = co_await std::move(forward);
  co_await backward(loss);
  co_await optimizer.step();
  const double value = loss.item();
  CS_REQUIRE(value > 0, "bench: the loss is ", value);
}

Task<void> measure(World& world, const TrainOptions& options, Measured& found) {
  manual_seed(0);
  nn::Transformer model(config_of(options), world);
  const bool replicas = options.plan == "dp";
  std::optional<DataParallel> gradients;
  if (world.size() > 1) {
    DeviceMesh mesh = init_device_mesh(world, {world.size()}, {replicas ? "dp" : "tp"});
    ParallelPlan plan = nn::transformer_plan(options.plan == "tp-sp");
    if (replicas)
      gradients.emplace(model.parameters(), mesh, 0);
    else
      co_await parallelize_module(model, mesh, plan);
  }
  AdamWOptions adamw;
  AdamW optimizer(model.parameters(), adamw);
  const int rows = replicas ? options.batch / world.size() : options.batch;
  const auto seed = static_cast<std::uint64_t>(replicas ? 2 * world.rank() : 0);
  const Tensor tokens = random_bytes(world, Shape{rows, options.seq}, seed + 1);
  const Tensor targets = random_bytes(world, Shape{rows * options.seq}, seed + 2);
  CommSummary table;
  world.add_observer(&table);
  Measured mine;
  double wall = 0;
  for (int i = 0; i < kWarmUp + options.steps; ++i) {
    if (i == kWarmUp) table.reset();
    const auto begin = std::chrono::steady_clock::now();
    Task<void> one = step(model, optimizer, tokens, targets);
    co_await std::move(one);
    if (i < kWarmUp) continue;
    mine.step_ms.push_back(seconds_since(begin) * 1e3);
    wall += mine.step_ms.back();
  }
  world.remove_observer(&table);
  mine.gemm_share = table.gemm_share(static_cast<std::int64_t>(wall * 1e6));
  mine.hidden_share = table.hidden_share();
  mine.threads = world.options().threads;
  if (world.rank() == 0) found = std::move(mine);
}

Measured run_ours(const TrainOptions& options) {
  Measured found;
  WorldOptions world_options = options.world;
  world_options.ranks = options.ranks;
  world_options.threads = options.threads;
  const Program program = [&](World& world) { return measure(world, options, found); };
  run_ranks(world_options, program);
  return found;
}

double peer_step_ms(const TrainOptions& o) {
  std::vector<std::string> arguments = {"train"};
  const bool replicas = o.plan == "dp" && o.ranks > 1;
  const int batch = replicas ? o.batch / o.ranks : o.batch;  // its --batch is per process
  const std::pair<const char*, int> values[] = {
      {"--world", o.ranks}, {"--dim", o.dim}, {"--heads", o.heads}, {"--layers", o.layers},
      {"--ffn", o.ffn},     {"--seq", o.seq}, {"--batch", batch},   {"--steps", o.steps}};
  for (const auto& [name, value] : values) {
    arguments.emplace_back(name);
    arguments.push_back(std::to_string(value));
  }
  if (o.plan == "tp-sp" && o.ranks > 1) arguments.emplace_back("--sp");
  if (replicas) arguments.insert(arguments.end(), {"--plan", "ddp"});
  const std::map<std::string, double> figures = run_peer(o.peer, arguments);
  const auto found = figures.find("step_ms");
  if (found == figures.end())
    fail(ErrorKind::Unsupported, str_cat("peer: ", o.peer, " gave no step_ms"));
  return found->second;
}

// A shape to measure, and its target speed relative to the peer.
struct Case {
  TrainOptions options;
  std::string name;
  double peer_target;
};

std::vector<Case> cases_of(const TrainOptions& options) {
  const auto make = [&options](int ranks, int batch, const char* plan, double target) {
    Case one{options, "", target};
    one.options.ranks = ranks;
    one.options.batch = batch;
    one.options.plan = plan;
    one.name = ranks == 1 ? fmt::format("ranks1_batch{}", batch)
                          : fmt::format("ranks{}_{}_batch{}", ranks, plan, batch);
    return one;
  };
  if (options.ranks == 0)
    return {make(1, 8, "tp", 1.2), make(2, 8, "tp", 2.0), make(2, 8, "tp-sp", 2.0),
            make(2, 2, "tp", 3.5)};
  return {make(options.ranks, options.batch, options.plan.c_str(), 0)};
}

RobustStats tokens_per_s(const Case& one, const RobustStats& ms) {
  const double tokens = 1e3 * one.options.batch * one.options.seq;
  return {tokens / ms.median, tokens / ms.max, tokens / ms.min, 0, ms.count};
}

void measure_case(const Case& one, const TrainOptions& options, Report& report) {
  std::vector<double> medians, all, gemm, hidden, peer;
  for (int round = 0; round < options.rounds; ++round) {
    if (options.progress) options.progress(fmt::format("{}: round {}", one.name, round + 1));
    const Measured ours = run_ours(one.options);
    report.machine["threads_per_rank"][std::to_string(one.options.ranks)] = ours.threads;
    const RobustStats stats = robust_stats(ours.step_ms);
    medians.push_back(stats.median);
    all.insert(all.end(), ours.step_ms.begin(), ours.step_ms.end());
    gemm.push_back(ours.gemm_share);
    hidden.push_back(ours.hidden_share);
    if (!options.peer.empty()) peer.push_back(peer_step_ms(one.options));
  }
  RobustStats ms = robust_stats(all);
  ms.median = robust_stats(medians).median;
  const auto add = [&](const char* what, const RobustStats& stats, const char* unit, bool more,
                       std::optional<double> target = {}) {
    report.results.push_back(measured(one.name + "_" + what, stats, unit, target, more));
  };
  add("step", ms, "ms", false);
  add("tokens_per_s", tokens_per_s(one, ms), "tokens/s", true);
  const bool alone = one.options.ranks == 1;
  add("gemm_share", robust_stats(gemm), "share", true, alone ? std::optional(0.8) : std::nullopt);
  if (!alone) add("hidden_share", robust_stats(hidden), "share", true);
  if (peer.empty()) return;
  const RobustStats theirs = robust_stats(peer);
  add("pytorch_step", theirs, "ms", false);
  const std::optional<double> target =
      one.peer_target > 0 ? std::optional(one.peer_target) : std::nullopt;
  report.results.push_back(ratio(one.name + "_over_pytorch", theirs.median / ms.median, target));
}

}  // namespace

Report bench_train(const TrainOptions& options) {
  Report report("train");
  report.note("shape",
              fmt::format("dim {} layers {} heads {} ffn {} seq {} {}", options.dim, options.layers,
                          options.heads, options.ffn, options.seq, options.dtype));
  for (const Case& one : cases_of(options)) measure_case(one, options, report);
  const Result* one = report.find("ranks1_batch8_tokens_per_s");
  const Result* two = report.find("ranks2_tp_batch8_tokens_per_s");
  if (one != nullptr && two != nullptr)
    report.results.push_back(ratio("ranks2_over_ranks1_batch8", two->value / one->value, 1.75));
  return report;
}

}  // namespace coshard::bench
