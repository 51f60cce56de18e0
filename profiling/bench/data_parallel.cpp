// The training step of two replicas whose gradients take as long on an emulated link as backward
// takes: reduced after backward, in buckets during backward, and not at all.
#include <fmt/format.h>

#include <algorithm>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/transformer.h>
#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

constexpr int kReplicas = 2;
constexpr std::int64_t kTokens = 256, kSequence = 128;
constexpr double kReplicaLatency = 20;  // us

nn::TransformerConfig config_of() {
  nn::TransformerConfig config;
  config.vocab = kTokens;
  config.dim = 256;
  config.layers = 4;
  config.heads = 8;
  config.ffn = 688;
  config.seq = kSequence;
  return config;
}

// One replica.
struct Replica {
  Replica(World& world, Overlap overlap, bool reduces)
      : model(config_of(), world),
        optimizer(model.parameters()),
        gradients(model.parameters(), init_device_mesh(world, {world.size()}, {"dp"}), 0,
                  {.overlap = overlap}),
        tokens(randint(0, kTokens, Shape{1, kSequence})),
        targets(randint(0, kTokens, Shape{kSequence})) {
    gradients.set_requires_gradient_sync(reduces);
  }
  Task<void> step() {
    optimizer.zero_grad();
    Task<Tensor> forward = model.forward(tokens);
    Tensor logits = co_await std::move(forward);
    logits = view(logits, Shape{kSequence, kTokens});
    const Tensor loss = cross_entropy(logits, targets);
    const auto begin = std::chrono::steady_clock::now();
    co_await backward(loss);
    backward_ms = seconds_since(begin) * 1e3;
    co_await optimizer.step();
  }

  nn::Transformer model;
  AdamW optimizer;
  DataParallel gradients;
  Tensor tokens, targets;
  double backward_ms = 0;
};

struct StepTimes {
  double serial_ms = 0, overlapped_ms = 0, compute_ms = 0, backward_ms = 0;
};
struct Found {
  std::vector<StepTimes> rounds;
  std::int64_t bytes = 0;
  std::size_t buckets = 0;
};

Task<void> measure(World& world, int rounds, Found& found) {
  manual_seed(1);
  Replica serial(world, Overlap::Off, true), overlapped(world, Overlap::Auto, true);
  Replica alone(world, Overlap::Off, false);
  for (int i = -2; i < rounds; ++i) {
    StepTimes round;
    Task<double> a = time_of(world, serial.step());
    round.serial_ms = co_await std::move(a);
    Task<double> b = time_of(world, overlapped.step());
    round.overlapped_ms = co_await std::move(b);
    Task<double> c = time_of(world, alone.step());
    round.compute_ms = co_await std::move(c);
    round.backward_ms = alone.backward_ms;
    if (i >= 0 && world.rank() == 0) found.rounds.push_back(round);
  }
  if (world.rank() != 0) co_return;
  const std::vector<std::int64_t> bytes = overlapped.gradients.bucket_bytes();
  found.buckets = bytes.size();
  for (const std::int64_t one : bytes) found.bytes += one;
}

Found run_replicas(const WorldOptions& world, int rounds) {
  Found found;
  run_ranks(world, [&](World& rank) { return measure(rank, rounds, found); });
  return found;
}

RobustStats stats_of(const Found& found, const auto& figure) {
  std::vector<double> values;
  for (const StepTimes& round : found.rounds) values.push_back(figure(round));
  return robust_stats(values);
}

}  // namespace

void measure_data_parallel(Report& report, const OverlapOptions& options) {
  WorldOptions world = options.world;
  world.ranks = kReplicas;
  world.threads = 1;
  const Found first = run_replicas(world, 3);
  const double link_ms = stats_of(first, [](const StepTimes& r) { return r.backward_ms; }).median;
  Collective reduce;
  reduce.kind = CollectiveKind::AllReduce;
  const double sent = static_cast<double>(algorithmic_bytes(reduce, kReplicas, first.bytes));
  world.link = Link{kReplicaLatency, sent / (link_ms * 1e3)};
  const Found found = run_replicas(world, options.rounds);
  report.note("emulated_link_dp_2_ranks", to_string(*world.link));
  report.note("buckets_dp_2_ranks", found.buckets);
  const auto add = [&](const char* what, const RobustStats& stats, const char* unit,
                       std::optional<double> target = std::nullopt) {
    report.results.push_back(measured(fmt::format("data_parallel_{}_2_ranks", what), stats, unit,
                                      target, target.has_value()));
  };
  // Forward and optimizer, and the longer of backward and link.
  const auto best = [link_ms](const StepTimes& r) {
    return r.compute_ms - r.backward_ms + std::max(r.backward_ms, link_ms);
  };
  add("serial", stats_of(found, [](const StepTimes& r) { return r.serial_ms; }), "ms");
  add("overlapped", stats_of(found, [](const StepTimes& r) { return r.overlapped_ms; }), "ms");
  add("compute", stats_of(found, [](const StepTimes& r) { return r.compute_ms; }), "ms");
  add("best", stats_of(found, best), "ms");
  add("share_of_best",
      stats_of(found, [&](const StepTimes& r) { return best(r) / r.overlapped_ms; }), "share",
      0.92);
}

}  // namespace coshard::bench
