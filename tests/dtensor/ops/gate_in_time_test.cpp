// The gate against time: its forecasts against a small simulation of the same jobs, and the
// schedules themselves on an emulated link in virtual time, where products take what the model
// says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/simulate.h>
#include "dtensor/mesh/calibration.h"
#include "dtensor/ops/linear_forecast.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

constexpr std::int64_t kCall = 4'000;  // ns of a product more, as the gate counts it
constexpr int kDraws = 200;
constexpr std::array<ScheduleKind, 3> kScheduleKinds{ScheduleKind::Gather, ScheduleKind::Scatter,
                                                     ScheduleKind::Reduce};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::int64_t operator()(std::int64_t least, std::int64_t most) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return least +
           static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::uint64_t state_;
};

// Jobs on resources that each do one at a time, in the order in which they were added.
class Jobs {
 public:
  // Begins when the resource is free and `after` is over; -1: at once. Returns its number.
  int add(int resource, std::int64_t ns, int after = -1) {
    std::int64_t& free = free_[static_cast<std::size_t>(resource)];
    const std::int64_t ready = after < 0 ? 0 : ends_[static_cast<std::size_t>(after)];
    free = std::max(free, ready) + ns;
    ends_.push_back(free);
    last_ = std::max(last_, free);
    return static_cast<int>(ends_.size()) - 1;
  }
  std::int64_t last() const { return last_; }

 private:
  std::array<std::int64_t, 2> free_{};
  std::vector<std::int64_t> ends_;
  std::int64_t last_ = 0;
};
constexpr int kCompute = 0, kWire = 1;

std::int64_t of_rows(const OverlapCase& c, std::int64_t rows) {
  return kCall + c.gemm.ns(rows, c.n, c.k);
}

std::int64_t serial_ns(const OverlapCase& c, ScheduleKind kind) {
  const std::int64_t times = kind == ScheduleKind::Reduce ? 2 : 1;
  Jobs jobs;
  jobs.add(kWire, c.latency_ns + times * (c.ranks - 1) * c.shard_ns,
           jobs.add(kCompute, of_rows(c, c.ranks * c.rows)));
  return jobs.last();
}

std::int64_t overlapped_ns(const OverlapCase& c, ScheduleKind kind, int pieces) {
  Jobs jobs;
  if (kind == ScheduleKind::Gather) {
    jobs.add(kCompute, of_rows(c, c.rows));
    for (int shard = 1; shard < c.ranks; ++shard) {
      const int arrived = jobs.add(kWire, c.shard_ns + (shard == 1 ? c.latency_ns : 0));
      jobs.add(kCompute, of_rows(c, c.rows), arrived);
    }
    return jobs.last();
  }
  const bool scatters = kind == ScheduleKind::Scatter;
  const std::int64_t whole = scatters ? c.rows : c.ranks * c.rows;
  const std::int64_t rows = (whole + pieces - 1) / pieces;
  const std::int64_t wire =
      c.latency_ns + (scatters ? c.shard_ns : 2 * (c.ranks - 1) * c.shard_ns) / pieces;
  std::vector<int> sent;
  for (int shard = 1; shard < (scatters ? c.ranks : 2); ++shard)
    for (int p = 0; p < pieces; ++p)
      sent.push_back(jobs.add(kWire, wire, jobs.add(kCompute, of_rows(c, rows))));
  if (!scatters) return jobs.last();
  for (int p = 0; p < pieces; ++p) jobs.add(kCompute, of_rows(c, rows));  // own rows
  for (int p = 0; p < pieces; ++p)
    jobs.add(kCompute, kCall, sent[sent.size() - static_cast<std::size_t>(pieces - p)]);
  return jobs.last();
}

// A core with caches: few rows are dear.
GemmTable core_with_caches(std::int64_t share_x1024) {
  GemmTable table;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
    const GemmTable::Point p = table.point(i);
    table.ns[i] = p.n * p.k * (p.rows + 12) * share_x1024 / 1024 + 1'500;
  }
  return table;
}

TEST(GateInTime, ForecastsWhatASimulationOfItsJobsTakes) {
  Draw draw(11);
  int overlapped = 0, plain = 0;
  for (int i = 0; i < kDraws; ++i) {
    const GemmTable table = core_with_caches(draw(1, 256));
    LinearShape shape;
    shape.ranks = static_cast<int>(draw(2, 8));
    shape.rows = draw(64, 4096);
    shape.in = draw(1, 64) * 64, shape.out = draw(1, 64) * 64;
    const Link link{static_cast<double>(draw(0, 300)), static_cast<double>(draw(50, 50'000))};
    for (const ScheduleKind kind : kScheduleKinds) {
      SCOPED_TRACE(str_cat("draw ", i, ", kind ", static_cast<int>(kind)));
      shape.cut = kind == ScheduleKind::Gather ? 0 : 1;
      const OverlapCase c = overlap_case(shape, kind, GemmModel{&table, 1}, link);
      const Schedule s = schedule_of(kind, c, Overlap::Auto);
      EXPECT_EQ(s.plain_ns, serial_ns(c, kind));
      if (!s) ++plain;
      if (!s) continue;
      ++overlapped;
      const std::int64_t took = overlapped_ns(c, kind, s.pieces);
      if (kind == ScheduleKind::Scatter) {  // sums begin before the last rows are there
        EXPECT_LE(took, s.ns);
        EXPECT_GE(took, s.ns - s.pieces * kCall);
      } else {
        EXPECT_EQ(took, s.ns);
      }
      EXPECT_LE(98 * took, 100 * serial_ns(c, kind));
    }
  }
  EXPECT_GT(overlapped, kDraws / 2);
  EXPECT_GT(plain, kDraws / 8);
}

TEST(GateInTime, CountsWhatProductsLoseToACollective) {
  OverlapCase c;
  c.ranks = 2, c.rows = 1024;
  c.row_ns_x1024 = 1'000'000;
  c.shard_ns = 1'000'000;
  for (const ScheduleKind kind : kScheduleKinds) {
    c.contention_x1024 = 0;
    const Schedule none = schedule_of(kind, c, Overlap::Auto);
    EXPECT_TRUE(none);
    c.contention_x1024 = 256;
    const Schedule some = schedule_of(kind, c, Overlap::Auto);
    EXPECT_GT(some.ns, none.ns);
    c.contention_x1024 = 1024;  // all of it
    EXPECT_FALSE(schedule_of(kind, c, Overlap::Auto));
  }
}

// Lets products take their time of the virtual clock: other ranks run meanwhile.
class TakesTime final : public Observer {
 public:
  TakesTime(World& world, GemmModel gemm) : world_(world), gemm_(gemm) { world.add_observer(this); }
  ~TakesTime() override { world_.remove_observer(this); }
  std::int64_t columns = 0;  // of the products to come

  void computing(std::string_view, ComputeClass what, const DescribeInputs& inputs) override {
    std::int64_t ns = kCall;
    if (what == ComputeClass::Gemm) {  // "f32[rows,k]…"
      const std::string text = inputs();
      std::int64_t rows = 0, k = 0;
      const char* end = text.data() + text.size();
      const char* at = std::from_chars(text.data() + text.find('[') + 1, end, rows).ptr;
      std::from_chars(at + 1, end, k);
      ns += gemm_.ns(rows, columns, k);
    }
    Parker& parker = RankContext::current().parker();
    const std::int64_t until = parker.now() + ns;
    while (parker.now() < until) parker.park(until);
  }

 private:
  World& world_;
  GemmModel gemm_;
};

// One layer of a draw on an emulated link.
struct DrawnLayer {
  LinearShape shape;
  std::int64_t share = 1;  // of GemmTable
  Link link;
};

DrawnLayer draw_layer(Draw& draw) {
  DrawnLayer layer;
  layer.shape.ranks = static_cast<int>(draw(2, 4));
  layer.shape.rows = draw(32, 128);
  layer.shape.in = draw(1, 4) * 8 * layer.shape.ranks;
  layer.shape.out = draw(1, 4) * 8 * layer.shape.ranks;
  layer.share = draw(1, 40);
  layer.link = {1e-3 * static_cast<double>(draw(0, 40'000)), static_cast<double>(draw(2, 400))};
  return layer;
}

Task<Tensor> run_drawn(World& world, DeviceMesh mesh, LinearShape shape, ScheduleKind kind,
                       Overlap overlap) {
  const auto part = [&](Placement placement, const Shape& whole) {
    const auto spec = make_spec(mesh, normalize(Layout(placement), whole, "test"), whole);
    return zeros(world.device(), spec->local_shape).with_spec(spec);
  };
  const bool gathers = kind == ScheduleKind::Gather;
  const Tensor cut =
      part(gathers ? Shard(0) : Shard(-1), Shape{shape.rows * shape.ranks, shape.in});
  const Tensor weight = part(gathers ? Shard(0) : Shard(1), Shape{shape.out, shape.in});
  std::optional<Placement> target;
  if (!gathers) target = kind == ScheduleKind::Scatter ? Shard(0) : Replicate();
  const Tensor x = gathers ? cut.redistribute(Replicate()).tensor() : cut;
  Task<Tensor> product = overlapped_linear(x, weight, Tensor(), target, overlap);
  const Tensor y = co_await std::move(product);
  Task<void> arrived = arrival_of(Tensors(y));
  co_await std::move(arrived);
  co_return y;
}

// Virtual ns, of the slowest rank, of each kind: plain, and as the gate chooses.
using Times = std::array<std::array<std::int64_t, 2>, 3>;

Times times_of(const DrawnLayer& layer, std::uint64_t seed) {
  Times times{};
  WorldOptions options;
  options.ranks = layer.shape.ranks;
  options.link = layer.link;
  SimOptions sim;
  sim.turn = std::chrono::nanoseconds(1);
  sim.slowest_transfer = std::chrono::nanoseconds(0);
  Calibration measured;
  measured.products = {core_with_caches(layer.share)};
  const auto shared = std::make_shared<const Calibration>(measured);
  const Program program = [&](World& world) -> Task<void> {
    const NoGradGuard no_grad;
    const DeviceMesh plain = init_device_mesh(world, {world.size()}, {"tp"});
    const DeviceMesh mesh = plain.with_calibration(shared);
    TakesTime taking(world, gemm_model(mesh, DType::F32));
    const LinearShape& shape = layer.shape;
    for (const ScheduleKind kind : kScheduleKinds)
      for (int way = 0; way < 2; ++way) {
        taking.columns = kind == ScheduleKind::Gather ? shape.out / shape.ranks : shape.out;
        world.communicator()->issue(Collective()).wait();
        const std::int64_t begin = world.executor().now();
        Task<Tensor> run =
            run_drawn(world, mesh, shape, kind, way == 0 ? Overlap::Off : Overlap::Auto);
        const Tensor y = co_await std::move(run);
        std::int64_t& slowest =
            times[static_cast<std::size_t>(kind)][static_cast<std::size_t>(way)];
        slowest = std::max(slowest, world.executor().now() - begin);
      }
  };
  simulate(options, program, seed, sim);
  return times;
}

TEST(GateInTime, NeverLosesOnAnEmulatedLink) {
  Draw draw(5);
  int faster = 0;
  for (int i = 0; i < kDraws; ++i) {
    DrawnLayer layer = draw_layer(draw);
    const GemmTable table = core_with_caches(layer.share);
    const Times times = times_of(layer, static_cast<std::uint64_t>(i));
    const Link& link = layer.link;
    for (const ScheduleKind kind : kScheduleKinds) {
      SCOPED_TRACE(str_cat("draw ", i, ", kind ", static_cast<int>(kind)));
      const auto [plain, chosen] = times[static_cast<std::size_t>(kind)];
      layer.shape.cut = kind == ScheduleKind::Gather ? 0 : 1;
      const OverlapCase c = overlap_case(layer.shape, kind, GemmModel{&table, 1}, link);
      const Schedule s = schedule_of(kind, c, Overlap::Auto);
      EXPECT_LE(98 * chosen, 100 * plain);
      constexpr std::int64_t kTurns = 2'000;  // ns of turns, and of rounding
      EXPECT_NEAR(static_cast<double>(plain), static_cast<double>(s.plain_ns), kTurns);
      // Of a reduce_scatter sums begin before the last rows are there.
      const std::int64_t early = kind == ScheduleKind::Scatter ? s.pieces * kCall : 0;
      EXPECT_LE(chosen, s.ns + kTurns);
      EXPECT_GE(chosen, s.ns - early - kTurns);
      faster += 100 * chosen < 97 * plain ? 1 : 0;
    }
  }
  EXPECT_GT(faster, kDraws / 2);
}

std::vector<std::string> errors_of(const std::function<Overlap(int rank)>& overlap,
                                   ScheduleKind kind) {
  std::vector<std::string> errors(2);
  LinearShape shape;
  shape.ranks = 2, shape.rows = 64;
  shape.in = shape.out = 8;
  const auto run = [&](World& world) -> Task<void> {
    try {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      Task<Tensor> layer = run_drawn(world, mesh, shape, kind, overlap(world.rank()));
      (void)co_await std::move(layer);
      mesh.communicator(0).issue(Collective()).wait();
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(world.rank())] = error.what();
    }
  };
  WorldOptions options = testing::test_options(2);
  options.link = Link{0, 1'000};
  try {
    run_ranks(options, run);
  } catch (const Error&) {  // told above
  }
  return errors;
}

// Also where both issue the same collective.
TEST(GateInTime, RanksThatChooseDifferentlyAreToldSo) {
  if (!testing::on_cpu()) GTEST_SKIP() << "a link is emulated on the CPU";
  const char* const chosen[] = {"chose shards of an all_gather as they arrive, pieces 1 before",
                                "chose rows of a reduce_scatter, pieces 1 before collective",
                                "chose rows of an all_reduce, pieces 2 before collective"};
  for (const ScheduleKind kind : kScheduleKinds) {
    const auto one = [](int rank) { return rank == 0 ? Overlap::Off : Overlap::Always; };
    for (const std::string& error : errors_of(one, kind)) {
      EXPECT_NE(error.find("ranks disagree on collective"), std::string::npos) << error;
      EXPECT_NE(error.find("rank 0 has not done so before"), std::string::npos) << error;
      EXPECT_NE(error.find(str_cat("rank 1 last ", chosen[static_cast<std::size_t>(kind)])),
                std::string::npos)
          << error;
    }
    const auto all = [](int) { return Overlap::Always; };
    for (const std::string& error : errors_of(all, kind)) EXPECT_EQ(error, "");
  }
}

}  // namespace
}  // namespace coshard
