#include "profiling/bench/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::bench {
namespace {

RobustStats stats_of(const std::vector<ScheduleRound>& rounds, const auto& figure) {
  std::vector<double> values;
  for (const ScheduleRound& round : rounds) values.push_back(figure(round));
  return robust_stats(values);
}

// A layer and the collective next to it.
struct Kind {
  const char* name;
  Placement input, weight, target;
};
const std::array<Kind, 3> kKinds{{
    {"all_gather_linear", Shard(0), Shard(0), Shard(-1)},
    {"linear_reduce_scatter", Shard(-1), Shard(1), Shard(0)},
    {"linear_all_reduce", Shard(-1), Shard(1), Replicate()},
}};

struct Layer {
  Layer(World& world, const Kind& kind, std::int64_t rows)
      : mesh(init_device_mesh(world, {world.size()}, {"tp"})),
        x(part(world, kind.input, Shape{rows, kLayerIn})),
        whole(part(world, Replicate(), Shape{rows, kLayerIn})),
        weight(part(world, kind.weight, Shape{kLayerOut, kLayerIn})),
        gathers(kind.input.is_shard(0)),
        target(gathers ? std::nullopt : std::optional(kind.target)) {}

  DTensor part(World& world, Placement placement, const Shape& shape) const {
    const auto spec = make_spec(mesh, normalize(Layout(placement), shape, "bench"), shape);
    return randn(world.device(), spec->local_shape).with_spec(spec);
  }

  DeviceMesh mesh;
  DTensor x, whole, weight;
  bool gathers;
  std::optional<Placement> target;
};

Task<void> run_layer(const Layer& layer, Overlap overlap) {
  const Tensor x = layer.gathers ? layer.x.redistribute(Replicate()).tensor() : layer.x;
  Task<Tensor> product = overlapped_linear(x, layer.weight, Tensor(), layer.target, overlap);
  const Tensor y = co_await std::move(product);
  Task<void> arrived = arrival_of(Tensors(y));
  co_await std::move(arrived);
}

Task<void> only_compute(const Layer& layer) {
  linear(layer.gathers ? layer.whole : layer.x, layer.weight).wait();
  co_return;
}

Task<void> measure(World& world, const Kind& kind, std::int64_t rows, int rounds,
                   std::vector<ScheduleRound>& found) {
  const NoGradGuard no_grad;
  const Layer layer(world, kind, rows);
  for (int i = -2; i < rounds; ++i) {
    ScheduleRound round;
    Task<double> a = time_of(world, run_layer(layer, Overlap::Off));
    round.plain_ms = co_await std::move(a);
    Task<double> b = time_of(world, run_layer(layer, Overlap::Always));
    round.overlapped_ms = co_await std::move(b);
    Task<double> c = time_of(world, only_compute(layer));
    round.compute_ms = co_await std::move(c);
    if (i >= 0 && world.rank() == 0) found.push_back(round);
  }
}

std::vector<ScheduleRound> rounds_of(const WorldOptions& world, const Kind& kind, std::int64_t rows,
                                     int rounds) {
  std::vector<ScheduleRound> found;
  run_ranks(world, [&](World& rank) { return measure(rank, kind, rows, rounds, found); });
  return found;
}

// A link that carries what the layer sends in `ms`.
Link link_for(const Kind& kind, int ranks, std::int64_t rows, double ms) {
  const std::int64_t width = kind.input.is_shard(0) ? kLayerIn : kLayerOut;
  const double sent = static_cast<double>(rows * width * 4) * (ranks - 1) / ranks;
  const double times = kind.target.is_replicate() ? 2 : 1;
  return {0, times * sent / (ms * 1e3)};
}

void measure_kind(Report& report, const OverlapOptions& options, int ranks, const Kind& kind) {
  WorldOptions world = options.world;
  world.ranks = ranks;
  world.threads = 1;
  std::int64_t rows = 256 * ranks;
  const double first_ms = compute_ms_of(rounds_of(world, kind, rows, 3));
  const double times = std::max(1.0, options.compute_ms / first_ms);
  rows = rows * static_cast<std::int64_t>(times);
  const std::vector<ScheduleRound> without_link = rounds_of(world, kind, rows, options.rounds);
  const double compute_ms = compute_ms_of(without_link);
  world.link = link_for(kind, ranks, rows, compute_ms * (ranks - 1) / ranks);
  const std::vector<ScheduleRound> rounds = rounds_of(world, kind, rows, options.rounds);
  const double goal = efficiency_goal(kind.target.is_replicate());
  add_schedule(report, kind.name, ranks, rounds, without_link, goal);
}

}  // namespace

Task<double> time_of(World& world, Task<void> program) {
  const Collective barrier;
  world.communicator()->issue(barrier).wait();
  const auto begin = std::chrono::steady_clock::now();
  co_await std::move(program);
  world.communicator()->issue(barrier).wait();
  co_return seconds_since(begin) * 1e3;
}

double compute_ms_of(const std::vector<ScheduleRound>& rounds) {
  return stats_of(rounds, [](const ScheduleRound& r) { return r.compute_ms; }).median;
}

double efficiency_of(double plain_ms, double overlapped_ms, double compute_ms) {
  constexpr double kMost = 1.05;
  const double hidden = 1 - (overlapped_ms - compute_ms) / (plain_ms - compute_ms);
  const bool measurable = plain_ms > compute_ms && hidden <= kMost;
  return measurable ? hidden : std::numeric_limits<double>::quiet_NaN();
}

void add_schedule(Report& report, const std::string& prefix, int ranks,
                  const std::vector<ScheduleRound>& rounds,
                  const std::vector<ScheduleRound>& without_link, double efficiency) {
  const auto add = [&](const char* what, const RobustStats& stats) {
    report.results.push_back(
        measured(fmt::format("{}_{}_{}_ranks", prefix, what, ranks), stats, "ms"));
  };
  const RobustStats plain = stats_of(rounds, [](const ScheduleRound& r) { return r.plain_ms; });
  const RobustStats overlapped =
      stats_of(rounds, [](const ScheduleRound& r) { return r.overlapped_ms; });
  const RobustStats compute = stats_of(rounds, [](const ScheduleRound& r) { return r.compute_ms; });
  const RobustStats copies =
      stats_of(without_link, [](const ScheduleRound& r) { return r.plain_ms - r.compute_ms; });
  const auto add_share = [&](const char* what, double beyond_ms, std::optional<double> target) {
    const double share = efficiency_of(plain.median, overlapped.median, beyond_ms);
    report.results.push_back(
        {fmt::format("{}_{}_{}_ranks", prefix, what, ranks), share, "share", target, true, {}, {}});
  };
  add("plain", plain);
  add("overlapped", overlapped);
  add("compute", compute);
  add_share("efficiency", compute.median, efficiency);
  add("copies", copies);
  add_share("link_efficiency", compute.median + std::max(0.0, copies.median), std::nullopt);
}

void measure_schedules(Report& report, const OverlapOptions& options, int ranks) {
  for (const Kind& kind : kKinds) measure_kind(report, options, ranks, kind);
}

}  // namespace coshard::bench
