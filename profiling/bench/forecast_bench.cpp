// A training step as `coshard simulate` forecasts it, compared with the same step measured. The
// processor's rates are those of a step whose ranks do not communicate, and must hold for steps of
// other shapes that do. Ranks in several processes use the link between them, which is measured.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/error.h>
#include "kernels/sim/table.h"
#include "profiling/bench/schedules.h"
#include "profiling/bench/transformer_step.h"
#include "runtime/device/sim/representative.h"
#include "runtime/launch/rank_directory.h"

namespace coshard::bench {
namespace {

enum class Ranks : std::uint8_t { Alone, Tensor, Sequence, Data };  // what they share

struct Case {
  const char* name;
  Ranks ranks;
  Overlap overlap;
};
constexpr std::array<Case, 7> kCases{{{"alone", Ranks::Alone, Overlap::Off},
                                      {"tp_off", Ranks::Tensor, Overlap::Off},
                                      {"tp_always", Ranks::Tensor, Overlap::Always},
                                      {"tp_sp_off", Ranks::Sequence, Overlap::Off},
                                      {"tp_sp_always", Ranks::Sequence, Overlap::Always},
                                      {"dp_off", Ranks::Data, Overlap::Off},
                                      {"dp_always", Ranks::Data, Overlap::Always}}};

bool splits_batch(const Case& which) {
  return which.ranks == Ranks::Alone || which.ranks == Ranks::Data;
}

// One case; the same program on all devices: the host reads nothing.
class Training {
 public:
  Training(World& world, const DeviceMesh& mesh, const ForecastOptions& o, const Case& which)
      : mesh_(mesh), which_(which), model_(config_of(o.step), world) {
    const std::int64_t rows = splits_batch(which) ? o.step.batch / world.size() : o.step.batch;
    tokens_ = zeros(world.device(), Shape{rows, o.step.seq}, DType::I64);
    targets_ = zeros(world.device(), Shape{rows * o.step.seq}, DType::I64);
    if (which.ranks == Ranks::Data)
      gradients_.emplace(model_.parameters(), mesh, 0,
                         DataParallelOptions{.overlap = which.overlap});
  }
  Task<void> prepare() {
    if (!splits_batch(which_)) {
      ParallelizeOptions options;
      options.src_data_rank = std::nullopt;
      options.overlap = which_.overlap;
      ParallelPlan plan = nn::transformer_plan(which_.ranks == Ranks::Sequence);
      Task<void> sharded = parallelize_module(model_, mesh_, std::move(plan), options);
      co_await std::move(sharded);
    }
    optimizer_.emplace(model_.parameters());
    optimizer_->check_replicas = 0;
  }
  Task<void> step() {
    optimizer_->zero_grad();
    Task<Tensor> forward = loss_of(model_, tokens_, targets_);
    Tensor loss = co_await std::move(forward);
    Task<void> back = backward(loss);
    co_await std::move(back);
    Task<void> update = optimizer_->step();
    co_await std::move(update);
  }

 private:
  DeviceMesh mesh_;
  Case which_;
  nn::Transformer model_;
  std::optional<DataParallel> gradients_;
  std::optional<AdamW> optimizer_;
  Tensor tokens_, targets_;
};

DeviceMesh mesh_of(World& world, Link link) {
  return init_device_mesh(world, {world.size()}, {"ranks"}).with_links({link});
}

// Totals by class of kernel over one step: measured nanoseconds, or work.
struct Totals {
  double gemm = 0, attention = 0, other = 0, kernels = 0;

  void add(ComputeClass what, double gemm_or_attention, double otherwise) {
    kernels += 1;
    if (what == ComputeClass::Gemm) gemm += gemm_or_attention;
    if (what == ComputeClass::Attention) attention += gemm_or_attention;
    if (what == ComputeClass::Other) other += otherwise;
  }
};

class KernelTimes final : public Observer {
 public:
  void computed(std::string_view, ComputeClass what, std::int64_t begin,
                std::int64_t end) override {
    const auto ns = static_cast<double>(end - begin);
    totals.add(what, ns, ns);
  }
  Totals totals;
};

struct Measured {
  Link link;
  std::array<std::vector<double>, kCases.size()> ms;
  std::vector<Totals> alone;
};

Task<void> measure(World& world, const ForecastOptions& options, Link link, Measured& found) {
  manual_seed(0);
  DeviceMesh mesh = mesh_of(world, link);
  if (link == Link()) {
    Task<DeviceMesh> real = measure_links(mesh);
    mesh = co_await std::move(real);
  }
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Case& which : kCases) {
    trainings.push_back(std::make_unique<Training>(world, mesh, options, which));
    Task<void> prepared = trainings.back()->prepare();
    co_await std::move(prepared);
  }
  const bool tells = world.rank() == 0;
  if (tells) found.link = mesh.links().front();
  for (int round = -2; round < options.step.rounds; ++round)
    for (std::size_t i = 0; i < kCases.size(); ++i) {
      KernelTimes kernels;
      world.add_observer(&kernels);
      Task<double> step = time_of(world, trainings[i]->step());
      const double ms = co_await std::move(step);
      world.remove_observer(&kernels);
      if (round < 0 || !tells) continue;
      found.ms[i].push_back(ms);
      if (i == 0) found.alone.push_back(kernels.totals);
    }
}

struct Simulated {
  double ms = 0;
  Totals work;  // flop of GEMMs and attention, bytes of the others
};

// The second step; the first creates the optimizer's state.
Simulated simulate_step(const ForecastOptions& options, const Case& which,
                        const ProcessorModel& processor, Link link) {
  kernels::add_sim_kernels();
  const auto device = std::make_shared<VirtualDevice>(processor);
  LinkModel model;
  model.name = "measured";
  model.protocols.push_back({link.latency * 1e3, 0, link.bytes_per_us * 1e6});
  Simulated found;
  const auto program = [&](World& world) -> Task<void> {
    Training training(world, mesh_of(world, link), options, which);
    Task<void> prepared = training.prepare();
    co_await std::move(prepared);
    Task<void> first = training.step();
    co_await std::move(first);
    device->on_kernel = [&found](const KernelWork& work, std::int64_t, std::int64_t) {
      found.work.add(work.what, work.flops, work.bytes);
    };
    const std::int64_t begin = device->compute_stream().now;
    Task<void> second = training.step();
    co_await std::move(second);
    device->on_kernel = nullptr;
    found.ms = static_cast<double>(device->compute_stream().now - begin) * 1e-6;
  };
  run_representative(
      options.step.ranks, device,
      [&model](const std::string&, const std::vector<int>&) { return model; }, program);
  return found;
}

double median(const std::vector<Totals>& rounds, double Totals::*figure) {
  std::vector<double> values;
  for (const Totals& round : rounds) values.push_back(round.*figure);
  return robust_stats(values).median;
}

// With the rates of the step without communication, and its overhead per kernel.
ProcessorModel processor_of(const ForecastOptions& options, const Measured& found) {
  ProcessorModel any;
  any.product_rate = any.wide_product_rate = any.attention_rate = any.memory_rate = 1e12;
  const Totals work = simulate_step(options, kCases[0], any, found.link).work;
  const double gemm = median(found.alone, &Totals::gemm);
  const double attention = median(found.alone, &Totals::attention);
  const double other = median(found.alone, &Totals::other);
  const double wall = robust_stats(found.ms[0]).median * 1e6;
  ProcessorModel processor;
  processor.name = "this one";
  processor.product_rate = processor.wide_product_rate = work.gemm / gemm * 1e9;
  processor.attention_rate = work.attention / attention * 1e9;
  processor.memory_rate = work.other / other * 1e9;
  processor.kernel_ns =
      static_cast<std::int64_t>(std::max(0.0, wall - gemm - attention - other) / work.kernels);
  return processor;
}

}  // namespace

Report bench_forecast(const ForecastOptions& options) {
  WorldOptions world = options.world;
  world.ranks = options.step.ranks;
  world.threads = options.step.threads;
  const bool real = processes(world).blocking != nullptr;
  if (!real) world.link = parse_link(options.link);
  Measured found;
  run_ranks(world, [&](World& rank) {
    return measure(rank, options, real ? Link() : *world.link, found);
  });
  Report report("forecast");
  if (found.alone.empty()) return report;  // of another process
  const ProcessorModel processor = processor_of(options, found);
  report.note("link",
              fmt::format("{:.1f}us,{:.0f}MB/s", found.link.latency, found.link.bytes_per_us));
  report.note("gemm_gflops", processor.wide_product_rate * 1e-9);
  report.note("memory_gbps", processor.memory_rate * 1e-9);
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const RobustStats stats = robust_stats(found.ms[i]);
    report.results.push_back(measured(fmt::format("{}_measured", kCases[i].name), stats, "ms"));
    if (kCases[i].ranks == Ranks::Alone) continue;  // the rates come from it
    const double forecast = simulate_step(options, kCases[i], processor, found.link).ms;
    report.results.push_back({fmt::format("{}_forecast", kCases[i].name), forecast, "ms"});
    report.results.push_back({fmt::format("{}_error", kCases[i].name),
                              std::abs(forecast / stats.median - 1), "share", 0.15});
  }
  return report;
}

}  // namespace coshard::bench
