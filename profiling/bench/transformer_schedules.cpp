#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/transformer.h>
#include <coshard/styles/parallelize.h>
#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

nn::TransformerConfig config_of() {
  nn::TransformerConfig config;
  config.vocab = 256;
  config.dim = 512;
  config.layers = 2;
  config.heads = 8;
  config.ffn = 1536;
  config.seq = 128;
  return config;
}

// What a rank computes next to one collective, in ms: wq, wk and wv; wo; w1 and w3; w2; the head.
enum Group { kQkv, kProjection, kUp, kDown, kHead, kGroups };
using GroupTimes = std::array<double, kGroups>;

struct Figures {
  std::vector<double> step_ms;
  GroupTimes products_ms{};
};

class Step {
 public:
  Step(World& world, std::int64_t batch)
      : model(std::make_unique<nn::Transformer>(config_of(), world)),
        tokens(zeros(world.device(), Shape{batch, config_of().seq}, DType::I64)) {}
  Task<void> cut(World& world, Overlap overlap) {
    const ParallelizeOptions options{.overlap = overlap};
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    const ParallelPlan plan = nn::transformer_plan(true);
    Task<void> cutting = parallelize_module(*model, mesh, plan, options);
    co_await std::move(cutting);
  }
  Task<void> run() {
    for (const Tensor& parameter : model->parameters()) parameter.set_grad({});
    Task<Tensor> forward = model->forward(tokens);
    const Tensor logits = co_await std::move(forward);
    Task<Tensor> entropy = loss_parallel_cross_entropy(logits, tokens);
    const Tensor loss = co_await std::move(entropy);
    Task<void> pass = backward(loss);
    co_await std::move(pass);
  }

 private:
  std::unique_ptr<nn::Transformer> model;
  Tensor tokens;
};

Task<void> multiply(Tensor x, Tensor weight) {
  const NoGradGuard no_grad;
  linear(x, weight).wait();
  co_return;
}

Task<void> time_products(World& world, std::int64_t rows, int rounds, GroupTimes& found) {
  const nn::TransformerConfig c = config_of();
  const std::int64_t n = world.size();
  const std::array<Shape, kGroups> weights{Shape{3 * c.dim / n, c.dim}, Shape{c.dim, c.dim / n},
                                           Shape{2 * c.ffn / n, c.dim}, Shape{c.dim, c.ffn / n},
                                           Shape{c.vocab / n, c.dim}};
  for (std::size_t group = 0; group < kGroups; ++group) {
    const Tensor weight = randn(world.device(), weights[group]);
    const Tensor x = randn(world.device(), Shape{rows, weights[group][1]});
    std::vector<double> times;
    for (int i = -2; i < rounds; ++i) {
      Task<double> timed = time_of(world, multiply(x, weight));
      const double ms = co_await std::move(timed);
      if (i >= 0) times.push_back(ms);
    }
    if (world.rank() == 0) found[group] = robust_stats(times).median;
  }
}

Task<void> measure(World& world, std::int64_t batch, Overlap overlap, int rounds, Figures& found) {
  manual_seed(1);
  Step step(world, batch);
  Task<void> cutting = step.cut(world, overlap);
  co_await std::move(cutting);
  for (int i = -2; i < rounds; ++i) {
    Task<double> timed = time_of(world, step.run());
    const double ms = co_await std::move(timed);
    if (i >= 0 && world.rank() == 0) found.step_ms.push_back(ms);
  }
  if (world.options().link) co_return;
  Task<void> products = time_products(world, batch * config_of().seq, rounds, found.products_ms);
  co_await std::move(products);
}

Figures figures_of(const WorldOptions& world, std::int64_t batch, Overlap overlap, int rounds) {
  Figures found;
  run_ranks(world, [&](World& rank) { return measure(rank, batch, overlap, rounds, found); });
  return found;
}

// What a ring schedule exposes of a collective of c_ms: each shard is sent during another's GEMM.
double ring_exposes(double c_ms, double product_ms, int ranks) {
  return std::max(0.0, c_ms - product_ms * (ranks - 1) / ranks);
}

// Per operator: what remains of each collective after the GEMM next to it or, where backward
// reduces, after that and the weight gradients that have just become ready.
double closed_form_exposed(double c_ms, const GroupTimes& g, int ranks) {
  const double forward = ring_exposes(c_ms, g[kQkv], ranks) +
                         ring_exposes(c_ms, g[kProjection], ranks) +
                         ring_exposes(c_ms, g[kUp], ranks) + ring_exposes(c_ms, g[kDown], ranks);
  const double gathers =
      ring_exposes(c_ms, g[kProjection], ranks) + ring_exposes(c_ms, g[kDown], ranks);
  const double reductions =
      std::max(0.0, c_ms - g[kQkv] - g[kProjection]) + std::max(0.0, c_ms - g[kUp] - g[kDown]);
  const double head = ring_exposes(c_ms, g[kHead], ranks) + std::max(0.0, c_ms - g[kHead]);
  // The embedding: nothing hides its sum; weight gradients hide its gradient's collective.
  const double embedding = c_ms + std::max(0.0, c_ms - g[kQkv]);
  return static_cast<double>(config_of().layers) * (forward + gathers + reductions) + head +
         embedding;
}

std::string named(const char* what, int ranks) {
  return fmt::format("transformer_{}_{}_ranks", what, ranks);
}

}  // namespace

void measure_transformer(Report& report, const OverlapOptions& options, int ranks) {
  WorldOptions world = options.world;
  world.ranks = ranks;
  world.threads = 1;
  const std::int64_t batch = std::max<std::int64_t>(1, std::llround(options.compute_ms / 2.5));
  const auto step_of = [&](Overlap overlap) {
    return robust_stats(figures_of(world, batch, overlap, options.rounds).step_ms);
  };
  const Figures alone = figures_of(world, batch, Overlap::Off, options.rounds);
  const RobustStats compute = robust_stats(alone.step_ms);
  const nn::TransformerConfig c = config_of();
  const GroupTimes& g = alone.products_ms;
  const double mean_ms = (g[kQkv] + g[kProjection] + g[kUp] + g[kDown]) / 4;
  const double bytes = static_cast<double>(batch * c.seq * c.dim * 4);
  world.link = Link{0, bytes / (mean_ms * 1e3)};
  const double collective_ms = mean_ms * (ranks - 1) / ranks;
  const RobustStats plain = step_of(Overlap::Off), overlapped = step_of(Overlap::Auto);
  const double best_ms = compute.median + closed_form_exposed(collective_ms, g, ranks);
  const double exposed_ms = static_cast<double>(8 * c.layers + 4) * collective_ms;
  report.note(fmt::format("transformer_link_{}_ranks", ranks), to_string(*world.link));
  const auto add = [&](const char* what, double value, const char* unit) {
    report.results.push_back({named(what, ranks), value, unit, {}, false, {}, {}});
  };
  add("serial", compute.median + exposed_ms, "ms");
  report.results.push_back(measured(named("plain", ranks), plain, "ms"));
  report.results.push_back(measured(named("overlapped", ranks), overlapped, "ms"));
  report.results.push_back(measured(named("compute", ranks), compute, "ms"));
  add("closed_form_best", best_ms, "ms");
  add("efficiency", efficiency_of(plain.median, overlapped.median, compute.median), "share");
  report.results.push_back(ratio(named("share_of_best", ranks), best_ms / overlapped.median, 0.92));
}

}  // namespace coshard::bench
