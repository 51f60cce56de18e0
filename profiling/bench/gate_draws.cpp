#include "profiling/bench/gate_draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/cost/link.h>
#include "dtensor/mesh/calibration.h"
#include "dtensor/ops/linear_forecast.h"

namespace coshard::bench {
namespace {

constexpr double kFloor = 0.98;     // of the plain schedule's speed
constexpr double kCalibrated = 50;  // us, latency of the link of the calibration

// One layer on one link.
struct Drawn {
  ScheduleKind kind = ScheduleKind::Gather;
  LinearShape shape;
  Link link;
};

class Draw {
 public:
  std::int64_t operator()(std::int64_t least, std::int64_t most) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return least +
           static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::uint64_t state_ = 3;
};

// Shapes of up to a few ms, and links on which the collective takes a tenth to ten times as long.
Drawn draw_layer(Draw& draw, ScheduleKind kind, int ranks, const GemmModel& gemm) {
  Drawn d;
  d.kind = kind;
  d.shape.ranks = ranks;
  d.shape.rows = draw(16, 512);
  d.shape.in = draw(2, 32) * 32, d.shape.out = draw(2, 32) * 32;
  d.shape.cut = kind == ScheduleKind::Gather ? 0 : 1;
  const OverlapCase c = overlap_case(d.shape, kind, gemm, Link{0, 1, 0});  // 1 byte per us
  const double times = kind == ScheduleKind::Reduce ? 2 : 1;
  const double us = times * (ranks - 1) * static_cast<double>(c.shard_ns) * 1e-3;
  const double compute_us = static_cast<double>(gemm.ns(ranks * c.rows, c.n, c.k)) * 1e-3;
  const double ratio = std::pow(10.0, static_cast<double>(draw(-100, 100)) / 100);
  d.link = {static_cast<double>(draw(0, 300)), us / (ratio * compute_us)};
  return d;
}

// Milliseconds of this rank.
Task<double> run_layer(World& world, DeviceMesh mesh, Drawn drawn, Overlap overlap) {
  const LinearShape& s = drawn.shape;
  const bool gathers = drawn.kind == ScheduleKind::Gather;
  const auto part = [&](Placement placement, const Shape& shape) {
    const auto spec = make_spec(mesh, normalize(Layout(placement), shape, "bench"), shape);
    return randn(world.device(), spec->local_shape).with_spec(spec);
  };
  const Tensor cut = part(gathers ? Shard(0) : Shard(-1), Shape{s.rows * s.ranks, s.in});
  const Tensor weight = part(gathers ? Shard(0) : Shard(1), Shape{s.out, s.in});
  std::optional<Placement> target;
  if (!gathers) target = drawn.kind == ScheduleKind::Scatter ? Shard(0) : Replicate();
  world.communicator()->issue(Collective()).wait();
  const std::int64_t begin = now_ns();
  const Tensor x = gathers ? cut.redistribute(Replicate()).tensor() : cut;
  Task<Tensor> product = overlapped_linear(x, weight, Tensor(), target, overlap);
  const Tensor y = co_await std::move(product);
  Task<void> arrived = arrival_of(Tensors(y));
  co_await std::move(arrived);
  co_return static_cast<double>(now_ns() - begin) * 1e-6;
}

// Speed-ups of the schedule that the gate chooses over `other`; they alternate in which runs first.
std::vector<double> speedups_of(WorldOptions options, const Drawn& drawn, Overlap other,
                                const std::shared_ptr<const Calibration>& measured,
                                const Link& link, int pairs) {
  options.link = drawn.link;
  std::vector<double> found;
  run_ranks(options, [&](World& world) -> Task<void> {
    const NoGradGuard no_grad;
    const DeviceMesh plain = init_device_mesh(world, {world.size()}, {"tp"});
    const std::vector<Link> links(1, link);
    const DeviceMesh mesh = plain.with_links(links).with_calibration(measured);
    for (int i = -2; i < pairs; ++i) {
      std::array<double, 2> ms{};
      for (int turn = 0; turn < 2; ++turn) {
        const int way = (i + 2 + turn) % 2;
        Task<double> run = run_layer(world, mesh, drawn, way == 0 ? other : Overlap::Auto);
        ms[static_cast<std::size_t>(way)] = co_await std::move(run);
      }
      if (i >= 0 && world.rank() == 0) found.push_back(ms[0] / ms[1]);
    }
  });
  return found;
}

std::shared_ptr<const Calibration> calibrated(WorldOptions options) {
  options.link = Link{kCalibrated, 1'000};
  std::shared_ptr<const Calibration> measured;
  run_ranks(options, [&](World& world) -> Task<void> {
    CalibrateOptions fresh;
    fresh.cache = std::filesystem::temp_directory_path() / fmt::format("coshard-{}", now_ns());
    const DeviceMesh plain = init_device_mesh(world, {world.size()}, {"tp"});
    Task<DeviceMesh> calibrating = calibrate(plain, fresh);
    const DeviceMesh mesh = co_await std::move(calibrating);
    if (world.rank() == 0) measured = mesh.calibration();
    std::filesystem::remove(fresh.cache);
  });
  return measured;
}

}  // namespace

MedianBounds median_bounds(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const std::size_t n = samples.size();
  // The largest k for which at most 5 % of n fair coins show fewer than k heads.
  double term = std::pow(0.5, static_cast<double>(n)), below = term;
  std::size_t k = 0;
  while (k + 1 < n && below <= 0.05) {
    ++k;
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    below += term;
  }
  const std::size_t at = k > 0 ? k - 1 : 0;
  return {samples[at], samples[n - 1 - at]};
}

void measure_draws(Report& report, const OverlapOptions& options) {
  WorldOptions world = options.world;
  world.ranks = options.ranks == 0 ? 2 : options.ranks;
  world.threads = 1;
  const auto measured = calibrated(world);
  const GemmModel gemm{measured->table(DType::F32), 1};
  const Link found = measured->links[0].link();
  // A collective's latency beyond the link's, as calibrating on each link would find.
  const double more_us = std::max(0.0, found.latency - kCalibrated);
  Draw draw;
  std::vector<std::vector<double>> overlapped, plain;
  for (int i = 0; i < 3 * options.draws; ++i) {
    const auto kind = static_cast<ScheduleKind>(i % 3);
    const Drawn drawn = draw_layer(draw, kind, world.ranks, gemm);
    Link link = drawn.link;
    link.latency += more_us, link.contention = found.contention;
    const OverlapCase c = overlap_case(drawn.shape, kind, gemm, link);
    const bool overlaps = static_cast<bool>(schedule_of(kind, c, Overlap::Auto));
    const Overlap other = overlaps ? Overlap::Off : Overlap::Always;
    (overlaps ? overlapped : plain)
        .push_back(speedups_of(world, drawn, other, measured, link, 3 * options.rounds));
  }
  report.note("gate_draws", 3 * options.draws);
  report.note("gate_contention", found.contention);
  report.note("gate_overhead_us", more_us);
  const auto count = [&](const char* name, const std::vector<std::vector<double>>& layers) {
    const auto of = static_cast<double>(layers.size());
    report.results.push_back({name, of, "layers", std::nullopt, true, {}, {}});
  };
  count("gate_overlapped_draws", overlapped);
  add_speedups(report, "gate", overlapped);
  count("gate_plain_draws", plain);
  add_speedups(report, "gate_plain", plain);
}

void add_speedups(Report& report, const std::string& prefix,
                  const std::vector<std::vector<double>>& layers) {
  std::vector<double> medians, low_bounds;
  int losing = 0;
  for (const std::vector<double>& speedups : layers) {
    const MedianBounds bounds = median_bounds(speedups);
    medians.push_back(robust_stats(speedups).median);
    low_bounds.push_back(bounds.low);
    losing += bounds.high < kFloor ? 1 : 0;
  }
  const auto add = [&](const std::string& name, double value, const char* unit,
                       std::optional<double> target, bool more) {
    report.results.push_back({prefix + name, value, unit, target, more, {}, {}});
  };
  const auto add_speedup = [&](const char* name, double value, std::optional<double> target) {
    add(name, layers.empty() ? std::numeric_limits<double>::quiet_NaN() : value, "x", target, true);
  };
  const RobustStats stats = robust_stats(medians);
  add_speedup("_median_speedup", stats.median, std::nullopt);
  add_speedup("_least_speedup", stats.min, kFloor);
  add_speedup("_least_lower_bound", robust_stats(low_bounds).min, kFloor);
  add("_losing_draws", losing, "layers", 0, false);
}

}  // namespace coshard::bench
