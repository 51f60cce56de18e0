// The collectives of a world in several processes, beside the blocking ones of the MPI between them.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>

#include <coshard/dtensor/distribute.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include <coshard/runtime/error.h>
#include "profiling/bench/all_reduce.h"
#include "profiling/bench/processes_bench.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {
namespace {

constexpr std::array<int, 5> kEachKib = {4, 64, 1024, 4096, 16384};  // KiB

int calls_of_a_round(int kib) { return kib <= 64 ? 400 : (kib <= 1024 ? 60 : 8); }

// By name, in microseconds: a round each.
using Rounds = std::map<std::string, std::vector<double>>;

template <class Call>
double micros_of(const Call& call, int calls) {
  for (int i = 0; i < calls / 4 + 1; ++i) call();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return seconds_since(begin) / calls * 1e6;
}

void measure_ours(World& world, int kib, Rounds& rounds) {
  const NoGradGuard no_grad;
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const Tensor whole = zeros(world.device(), Shape{kib * 4, 64});
  const DTensor partial = from_local(whole, mesh, Partial());
  const DTensor rows = distribute_tensor(whole, mesh, Shard(0));
  const auto add = [&](const char* name, const auto& call) {
    rounds[fmt::format("{}_{}KiB", name, kib)].push_back(micros_of(call, calls_of_a_round(kib)));
  };
  const auto redistribute = [&](const char* name, const DTensor& source, Placement target) {
    add(name, [&] { source.redistribute(target).tensor().wait(); });
  };
  add("all_reduce", AllReduce(world, kib * 256));
  redistribute("P_to_R", partial, Replicate());
  redistribute("S0_to_R", rows, Replicate());
  redistribute("P_to_S0", partial, Shard(0));
  redistribute("S0_to_S1", rows, Shard(1));
}

void measure_theirs(const Processes& several, int kib, Rounds& rounds) {
  const auto elements = static_cast<std::size_t>(kib) * 256;
  std::vector<float> send(elements), recv(elements);
  const auto add = [&](const char* name, BlockingCollective kind) {
    const auto call = [&] {
      if (const char* problem = several.blocking(kind, send.data(), recv.data(), elements))
        fail(ErrorKind::CommFailed, problem);
    };
    rounds[fmt::format("{}_{}KiB", name, kib)].push_back(micros_of(call, calls_of_a_round(kib)));
  };
  add("all_reduce", BlockingCollective::AllReduceInPlace);
  add("P_to_R", BlockingCollective::AllReduce);
  add("S0_to_R", BlockingCollective::AllGather);
  add("P_to_S0", BlockingCollective::ReduceScatter);
  add("S0_to_S1", BlockingCollective::AllToAll);
}

}  // namespace

void bench_processes(Report& report, WorldOptions options, const Processes& several) {
  options.ranks = several.all;
  report.note("ranks", several.all);
  report.note("mpi", several.mpi);
  Rounds ours, theirs;
  for (int round = 0; round < kRounds + 1; ++round) {
    for (const int kib : kEachKib) {
      const Program program = [&ours, kib](World& world) -> Task<void> {
        Rounds unused;
        measure_ours(world, kib, world.rank() == 0 ? ours : unused);
        co_return;
      };
      run_ranks(options, program);
      measure_theirs(several, kib, theirs);
    }
    if (round == 0) ours.clear(), theirs.clear();  // warm
  }
  if (several.self != 0) return;
  for (const int kib : kEachKib) {
    for (const char* what : {"all_reduce", "P_to_R", "S0_to_R", "P_to_S0", "S0_to_S1"}) {
      const std::string name = fmt::format("{}_{}KiB", what, kib);
      const Result mine = measured(name, robust_stats(ours[name]), "us");
      const Result mpis = measured("mpi_" + name, robust_stats(theirs[name]), "us");
      report.results.push_back(mine);
      report.results.push_back(mpis);
      report.results.push_back(
          ratio("ratio_mpi_" + name, mpis.value / mine.value, kib == 4 ? 1.0 / 3 : 1 / 1.3));
    }
  }
}

}  // namespace coshard::bench
