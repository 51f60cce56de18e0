#include <array>
#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

// A layer in backward: dY is gathered, or the gradient of its input reduced.
struct BackwardKind {
  const char* name;
  Placement input, weight, target;  // of x, of the weight, of y
  bool learns;                      // the weight: its gradient hides the collective, not a schedule
  Overlap overlap;                  // of the measured layer
};
const std::array<BackwardKind, 4> kBackwardKinds{{
    // S3: shards of dY are multiplied as they arrive.
    {"backward_all_gather_linear", Shard(-1), Shard(1), Shard(0), false, Overlap::Always},
    // S1: dX is reduced during the weight gradient.
    {"backward_reduce_scatter_weight", Shard(0), Shard(0), Shard(-1), true, Overlap::Off},
    // S5 and S7: dX is sent row by row.
    {"backward_linear_reduce_scatter", Shard(0), Shard(0), Shard(-1), false, Overlap::Always},
    {"backward_linear_all_reduce", Replicate(), Shard(0), Shard(-1), false, Overlap::Always},
}};

class BackwardLayer {
 public:
  BackwardLayer(World& world, const BackwardKind& kind, std::int64_t rows)
      : kind_(kind),
        mesh_(init_device_mesh(world, {world.size()}, {"tp"})),
        weight_(part(world, kind.weight, Shape{kLayerOut, kLayerIn})),
        dy_(part(world, kind.target, Shape{rows, kLayerOut})),
        whole_dy_(part(world, gathers() ? Replicate() : Shard(-1), Shape{rows, kLayerOut})),
        whole_x_(part(world, gathers() ? Shard(-1) : Replicate(), Shape{rows, kLayerIn})) {
    if (kind.input.is_replicate())
      x_ = randn(world.device(), Shape{rows, kLayerIn});
    else
      x_ = part(world, kind.input, Shape{rows, kLayerIn});
    x_.set_requires_grad(true);
  }

  // Forward; its backward is measured.
  Task<Tensor> forward(bool learns, Overlap overlap) {
    const Tensor weight = weight_.detach().set_requires_grad(learns);
    Tensor x = x_.is_distributed() ? x_ : from_local(x_, mesh_, Replicate());
    if (kind_.input.is_shard(0)) x = x.redistribute(Replicate()).tensor();
    const std::optional<Placement> target = gathers() ? std::optional(kind_.target) : std::nullopt;
    Task<Tensor> product = overlapped_linear(x, weight, Tensor(), target, overlap);
    co_return co_await std::move(product);
  }
  Task<void> walk(Tensor y) const {
    x_.set_grad({});
    Task<void> pass = backward(y, dy_, {.retain_graph = true});
    co_await std::move(pass);
    Task<void> arrived = arrival_of(Tensors(x_.grad()));  // backward leaves it in flight
    co_await std::move(arrived);
  }
  // Each collective is awaited before the next GEMM.
  Task<void> serial(Tensor frozen) const {
    Task<void> pass = walk(frozen);
    co_await std::move(pass);
    if (kind_.learns) weight_gradient();
  }
  Task<void> only_compute() const {
    const NoGradGuard no_grad;
    matmul(whole_dy_, weight_).wait();
    if (kind_.learns) weight_gradient();
    co_return;
  }

 private:
  bool gathers() const { return kind_.target.is_shard(0); }
  void weight_gradient() const {
    const NoGradGuard no_grad;
    matmul(whole_dy_.t(), whole_x_).wait();
  }
  DTensor part(World& world, Placement placement, const Shape& shape) const {
    const auto spec = make_spec(mesh_, normalize(Layout(placement), shape, "bench"), shape);
    return randn(world.device(), spec->local_shape).with_spec(spec);
  }

  const BackwardKind& kind_;
  DeviceMesh mesh_;
  DTensor weight_, dy_, whole_dy_, whole_x_;
  Tensor x_;
};

Task<void> measure(World& world, const BackwardKind& kind, std::int64_t rows, int rounds,
                   std::vector<ScheduleRound>& found) {
  BackwardLayer layer(world, kind, rows);
  Task<Tensor> one = layer.forward(false, Overlap::Off);
  const Tensor frozen = co_await std::move(one);
  Task<Tensor> two = layer.forward(kind.learns, kind.overlap);
  const Tensor overlapped = co_await std::move(two);
  for (int i = -2; i < rounds; ++i) {
    ScheduleRound round;
    Task<double> a = time_of(world, layer.serial(frozen));
    round.plain_ms = co_await std::move(a);
    Task<double> b = time_of(world, layer.walk(overlapped));
    round.overlapped_ms = co_await std::move(b);
    Task<double> c = time_of(world, layer.only_compute());
    round.compute_ms = co_await std::move(c);
    if (i >= 0 && world.rank() == 0) found.push_back(round);
  }
}

std::vector<ScheduleRound> rounds_of(const WorldOptions& world, const BackwardKind& kind,
                                     std::int64_t rows, int rounds) {
  std::vector<ScheduleRound> found;
  run_ranks(world, [&](World& rank) { return measure(rank, kind, rows, rounds, found); });
  return found;
}

// A link that carries what backward sends in `ms`.
Link link_for(const BackwardKind& kind, int ranks, std::int64_t rows, double ms) {
  const std::int64_t width = kind.target.is_shard(0) ? kLayerOut : kLayerIn;
  const double sent = static_cast<double>(rows * width * 4) * (ranks - 1) / ranks;
  const double times = kind.input.is_replicate() ? 2 : 1;
  return {0, times * sent / (ms * 1e3)};
}

void measure_kind(Report& report, const OverlapOptions& options, int ranks,
                  const BackwardKind& kind) {
  WorldOptions world = options.world;
  world.ranks = ranks;
  world.threads = 1;
  std::int64_t rows = 256 * ranks;
  const double first_ms = compute_ms_of(rounds_of(world, kind, rows, 3));
  rows *= std::max<std::int64_t>(1, std::llround(options.compute_ms / first_ms));
  // The collective takes as long as the GEMM that hides it.
  const std::vector<ScheduleRound> without_link = rounds_of(world, kind, rows, options.rounds);
  const double product_ms = compute_ms_of(without_link) / (kind.learns ? 2 : 1);
  world.link = link_for(kind, ranks, rows, product_ms * (ranks - 1) / ranks);
  const double goal = efficiency_goal(kind.input.is_replicate());
  add_schedule(report, kind.name, ranks, rounds_of(world, kind, rows, options.rounds), without_link,
               goal);
}

}  // namespace

void measure_backward_schedules(Report& report, const OverlapOptions& options, int ranks) {
  for (const BackwardKind& kind : kBackwardKinds) measure_kind(report, options, ranks, kind);
}

}  // namespace coshard::bench
