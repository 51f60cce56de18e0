#include <fmt/format.h>

#include <algorithm>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/gpu_cases.h"
#include "profiling/bench/peer.h"
#include "runtime/device/describe.h"

namespace coshard::bench {
namespace {

constexpr double kOperatorUs = 3, kRedistributeUs = 5;

struct GpuPart {
  const char* name;
  int ranks;  // 0: as many as there are devices, at least two
  Task<void> (*measure)(World&, const GpuSizes&, GpuResults&);
};
constexpr GpuPart kGpuParts[] = {{"host time", 1, measure_host_time},
                                 {"host time of a redistribute", 2, measure_host_redistribute},
                                 {"matmul", 1, measure_matmul},
                                 {"bandwidth", 1, measure_bandwidth},
                                 {"attention", 1, measure_attention},
                                 {"block", 1, measure_block},
                                 {"collectives", 0, measure_collective_bandwidth},
                                 {"overlap", 0, measure_overlap}};

Task<void> measure_part(World& world, const GpuPart& one, const GpuSizes& sizes,
                        GpuResults& results) {
  GpuResults mine;
  Task<void> work = one.measure(world, sizes, mine);
  co_await std::move(work);
  if (world.rank() == 0) results.insert(results.end(), mine.begin(), mine.end());
}

// A part that fails is reported, and the others still run.
void run_part(const GpuPart& one, const GpuOptions& options, const GpuSizes& sizes, int devices,
              Report& report) {
  if (options.progress) options.progress(one.name);
  WorldOptions world = options.world;
  world.ranks = one.ranks > 0 ? one.ranks : std::max(2, devices);
  const Program program = [&](World& w) { return measure_part(w, one, sizes, report.results); };
  try {
    run_ranks(world, program);
  } catch (const std::exception& error) {
    report.failures.push_back(fmt::format("{}: {}", one.name, error.what()));
  }
}

std::vector<std::string> gpu_peer_arguments(const GpuOptions& options, const GpuSizes& s) {
  std::vector<std::string> arguments = {"--device", std::string(to_string(options.world.device))};
  const std::pair<const char*, std::int64_t> values[] = {
      {"--hidden", s.hidden},     {"--ffn", s.ffn},
      {"--heads", s.heads},       {"--tokens", s.tokens},
      {"--vocab", s.vocab},       {"--matmul", s.matmul},
      {"--copied", s.copied},     {"--parameters", s.parameters},
      {"--kv-heads", s.kv_heads}, {"--calls", s.calls},
      {"--steps", s.steps}};
  for (const auto& [name, value] : values) {
    arguments.emplace_back(name);
    arguments.push_back(std::to_string(value));
  }
  return arguments;
}

// Adds theirs as "pytorch_…", and how many times better each of ours is.
void beside_gpu_peer(Report& report, const std::map<std::string, double>& peer) {
  const auto theirs = [&](const std::string& name) {
    const auto found = peer.find(name);
    return found == peer.end() ? 0.0 : found->second;
  };
  const GpuResults ours = report.results;
  const auto compare = [&](const Result& result, const std::string& name, const std::string& as,
                           std::optional<double> target) {
    const double value = theirs(name);
    if (value <= 0 || result.value <= 0) return;
    report.results.push_back(
        {"pytorch_" + name, value, result.unit, {}, result.more_is_better, {}, {}});
    report.results.push_back(
        ratio(as, result.more_is_better ? result.value / value : value / result.value, target));
  };
  for (const Result& result : ours) {
    if (result.name == "block") {
      compare(result, "block_compiled", "block_over_compiled", 1.0);
      compare(result, "block_eager", "block_over_eager", 1.15);
    } else {
      const bool is_matmul = result.name == "matmul";
      compare(result, result.name, result.name + "_over_pytorch",
              is_matmul ? std::optional(0.97) : std::nullopt);
    }
  }
}

}  // namespace

GpuSizes GpuSizes::tiny() {
  GpuSizes sizes;
  sizes.hidden = 32;
  sizes.ffn = 48;
  sizes.heads = 4;
  sizes.kv_heads = 2;
  sizes.tokens = 8;
  sizes.vocab = 40;
  sizes.matmul = 32;
  sizes.parameters = 320;
  sizes.copied = 1024;
  sizes.collective_kib = {1, 4};
  sizes.gathered = 16;
  sizes.product = 16;
  sizes.calls = 1;
  sizes.steps = 1;
  return sizes;
}

// On one rank, as PyTorch is measured: threads that launch at once wait for each other in the
// driver.
Task<void> measure_host_time(World& world, const GpuSizes& sizes, GpuResults& results) {
  Device& device = *world.device();
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const NoGradGuard no_grad;
  const Tensor a = randn(world.device(), Shape{64, 64}), b = randn(world.device(), Shape{64, 64});
  const DTensor da = from_local(a, mesh, Shard(0)), db = from_local(b, mesh, Shard(0));
  const auto add_result = [&](const char* name, const RobustStats& us, double target) {
    results.push_back(measured(name, us, "us", target));
  };
  add_result("host_add",
             timed_on_host(
                 device, [&] { add(a, b); }, sizes.calls),
             kOperatorUs);
  add_result("host_linear",
             timed_on_host(
                 device, [&] { linear(a, b); }, sizes.calls),
             kOperatorUs);
  add_result("host_rms_norm",
             timed_on_host(
                 device, [&] { rms_norm(a); }, sizes.calls),
             kOperatorUs);
  add_result("host_dtensor_add",
             timed_on_host(
                 device, [&] { add(da, db); }, sizes.calls),
             kOperatorUs);
  co_return;
}

Task<void> measure_host_redistribute(World& world, const GpuSizes& sizes, GpuResults& results) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const NoGradGuard no_grad;
  const DTensor x = from_local(randn(world.device(), Shape{64, 64}), mesh, Shard(0));
  const auto gather = [&x] { x.redistribute(Replicate()).tensor().wait(); };
  const RobustStats us = timed_on_host(*world.device(), gather, sizes.calls);
  results.push_back(measured("host_redistribute", us, "us", kRedistributeUs));
  co_return;
}

Task<void> measure_matmul(World& world, const GpuSizes& sizes, GpuResults& results) {
  const NoGradGuard no_grad;
  const Shape square{sizes.matmul, sizes.matmul};
  const Tensor a = randn(world.device(), square, DType::BF16);
  const Tensor b = randn(world.device(), square, DType::BF16);
  const RobustStats us = timed_on_device(
      *world.device(), [&] { matmul(a, b); }, sizes.steps);
  const double n = static_cast<double>(sizes.matmul), flops = 2 * n * n * n;
  const auto rate = [flops](double microseconds) { return flops / microseconds / 1e6; };
  const RobustStats stats = {rate(us.median), rate(us.max), rate(us.min), 0, us.count};
  results.push_back(measured("matmul", stats, "TFLOP/s", std::nullopt, true));
  co_return;
}

Report bench_gpu(const GpuOptions& options) {
  Report report("gpu");
  const BackendDescription found = describe_backend(options.world.device);
  if (!found.problem.empty())
    fail(ErrorKind::DeviceFailed,
         str_cat(found.problem, "; `coshard doctor` says what is missing"));
  for (const auto& [what, text] : found.facts) report.note(what, text);
  if (!found.devices.empty()) report.note("device", found.devices[0].name);
  const GpuSizes sizes = options.tiny ? GpuSizes::tiny() : GpuSizes();
  const int devices = static_cast<int>(found.devices.size());
  for (const GpuPart& one : kGpuParts) run_part(one, options, sizes, devices, report);
  if (options.peer.empty()) return report;
  if (options.progress) options.progress("PyTorch");
  try {
    beside_gpu_peer(report, run_peer(options.peer, gpu_peer_arguments(options, sizes)));
  } catch (const Error& error) {
    report.failures.emplace_back(error.what());
  }
  return report;
}

}  // namespace coshard::bench
