#include <fmt/format.h>

#include <array>
#include <cstring>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/bench/all_reduce.h"
#include "profiling/bench/benches.h"
#include "profiling/bench/peer.h"
#include "profiling/bench/processes_bench.h"
#include "profiling/bench/timed.h"
#include "profiling/child_process.h"
#include "runtime/launch/rank_directory.h"

namespace coshard::bench {
namespace {

using Results = std::vector<Result>;
constexpr std::array<int, 4> kSizes = {4, 64, 1024, 16384};  // KiB

int calls_for(int kib) { return kib <= 64 ? 400 : (kib <= 1024 ? 60 : 8); }

void barrier(World& world) {
  Collective call;
  world.communicator()->issue(call).wait();
}

// 16 MiB, interleaved: the all_reduce in place and from one buffer to another, and what the ranks'
// threads reach when each only copies as many bytes. The copies are compared with the second form,
// which touches as much memory.
void bandwidth(World& world, Results& results) {
  constexpr std::int64_t kBytes = 16 << 20;
  const AllReduce in_place(world, kBytes / 4);
  const AllReduce all_reduce(world, kBytes / 4, false);
  const Tensor from = zeros(world.device(), Shape{kBytes / 4});
  const Tensor to = zeros(world.device(), Shape{kBytes / 4});
  std::vector<double> reduce_us, copy_us, in_place_us;
  for (int round = 0; round < 2 * kRounds + 1; ++round) {
    barrier(world);
    const RobustStats copy = timed([&] { std::memcpy(to.data(), from.data(), kBytes); }, 2, 1);
    barrier(world);
    const RobustStats reduce = timed(all_reduce, 2, 1);
    copy_us.push_back(copy.median);
    reduce_us.push_back(reduce.median);
    barrier(world);
    in_place_us.push_back(timed(in_place, 2, 1).median);
  }
  const auto gigabytes = [](std::vector<double> micros) {
    for (double& us : micros) us = static_cast<double>(kBytes) / us / 1e3;
    return robust_stats(micros);
  };
  const RobustStats reduce = gigabytes(reduce_us), copy = gigabytes(copy_us);
  results.push_back(measured("all_reduce_16384KiB", robust_stats(in_place_us), "us"));
  results.push_back(measured("all_reduce_16384KiB_two_buffers", reduce, "GB/s", {}, true));
  results.push_back(measured("plain_copies_16384KiB", copy, "GB/s", {}, true));
  results.push_back(
      ratio("all_reduce_16384KiB_of_plain_copies", reduce.median / copy.median, 0.70));
}

void redistributes(const DeviceMesh& mesh, World& world, int kib, Results& results) {
  const NoGradGuard no_grad;
  const int calls = calls_for(kib);
  const Tensor whole = zeros(world.device(), Shape{kib * 4, 64});
  const DTensor partial = from_local(whole, mesh, Partial());
  const DTensor rows = distribute_tensor(whole, mesh, Shard(0));
  const auto add_result = [&](const char* name, const DTensor& source, Placement target) {
    const auto call = [&] { source.redistribute(target).tensor().wait(); };
    results.push_back(measured(fmt::format("{}_{}KiB", name, kib), timed(call, calls, 5), "us"));
  };
  add_result("P_to_R", partial, Replicate());
  add_result("S0_to_R", rows, Replicate());
  add_result("P_to_S0", partial, Shard(0));
  add_result("S0_to_S1", rows, Shard(1));
}

Task<void> measure_collectives(World& world, Results& results) {
  DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  Results mine;
  for (const int kib : kSizes) {
    if (kib == 16384) continue;
    const AllReduce call(world, kib * 256);
    const std::optional<double> target =
        kib == 4 && world.size() == 2 ? std::optional(3.0) : std::nullopt;
    mine.push_back(measured(fmt::format("all_reduce_{}KiB", kib), timed(call, calls_for(kib), 50),
                            "us", target));
  }
  bandwidth(world, mine);
  for (const int kib : kSizes) redistributes(mesh, world, kib, mine);
  if (world.rank() == 0) results = std::move(mine);
  co_return;
}

Task<void> measure_many_ranks(World& world, Results& results) {
  const AllReduce call(world, 64 * 256);
  const RobustStats stats = timed(call, 50, 20);
  if (world.rank() == 0) results.push_back(measured("all_reduce_64KiB_8_ranks", stats, "us", 1000));
  co_return;
}

void beside_mpi(Report& report, const std::string& program, int ranks) {
  const std::vector<std::string> command = {"mpirun", "--allow-run-as-root", "--oversubscribe",
                                            "-n",     std::to_string(ranks), program};
  const std::optional<std::string> text = output_of(command);
  report.note("open_mpi", text ? "yes" : "could not be run");
  if (!text) return;
  for (const auto& [name, micros] : numbers_of(*text)) {
    const Result* ours = report.find(name);
    if (ours == nullptr) continue;
    const double faster = micros / ours->value;
    const std::optional<double> target =
        name == "all_reduce_16384KiB" ? std::optional(1.0) : std::nullopt;
    report.results.push_back({"open_mpi_" + name, micros, "us", {}, false, {}, {}});
    report.results.push_back(ratio("ratio_open_mpi_" + name, faster, target));
  }
}

void beside_pytorch(Report& report, const std::string& script, int ranks) {
  const std::vector<std::string> arguments = {"collectives", "--world", std::to_string(ranks)};
  const std::map<std::string, double> peer = run_peer(script, arguments);
  const Results ours = report.results;
  for (const Result& result : ours) {
    const std::size_t cut = result.name.rfind('_');
    if (cut == std::string::npos) continue;
    const std::string what = result.name.substr(0, cut), size = result.name.substr(cut + 1);
    const auto found =
        peer.find(size + (what == "all_reduce" ? ".gloo_all_reduce" : "." + what) + ".median_us");
    if (found == peer.end()) continue;
    report.results.push_back({"pytorch_" + result.name, found->second, "us", {}, false, {}, {}});
    report.results.push_back(ratio("ratio_" + result.name, found->second / result.value, {}));
  }
}

}  // namespace

Report bench_redistribute(const RedistributeOptions& options) {
  Report report("redistribute");
  WorldOptions world_options = options.world;
  if (const Processes several = processes(world_options); several.blocking != nullptr) {
    world_options.threads = 1;
    bench_processes(report, world_options, several, options.peer);
    return report;
  }
  report.note("ranks", options.ranks);
  Results results;
  world_options.ranks = options.ranks;
  world_options.threads = 1;
  const Program program = [&results](World& world) { return measure_collectives(world, results); };
  run_ranks(world_options, program);
  world_options.ranks = 8;
  const Program many = [&results](World& world) { return measure_many_ranks(world, results); };
  run_ranks(world_options, many);
  report.results = std::move(results);
  if (!options.mpi_program.empty()) beside_mpi(report, options.mpi_program, options.ranks);
  if (!options.peer.empty()) beside_pytorch(report, options.peer, options.ranks);
  return report;
}

}  // namespace coshard::bench
