// Collectives of a world in several processes, compared with the blocking ones of its MPI.
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <functional>
#include <map>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include "profiling/bench/all_reduce.h"
#include "profiling/bench/peer.h"
#include "profiling/bench/processes_bench.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {
namespace {

constexpr std::array<int, 5> kEachKib = {4, 64, 1024, 4096, 16384};  // KiB

int calls_of_a_round(int kib) { return kib <= 64 ? 400 : (kib <= 1024 ? 60 : 8); }

// By name: microseconds of each round.
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

// CPU time of this process, all threads.
double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// CPU use of a process while its rank sleeps, in percent of a core.
struct Resting {
  double idle = 0, in_flight = 0;
};

Task<double> percent_asleep() {
  constexpr std::chrono::seconds kRest{2};
  const double before = cpu_seconds();
  co_await sleep_for(kRest);
  co_return (cpu_seconds() - before) / std::chrono::duration<double>(kRest).count() * 100;
}

Task<void> measure_resting(World& world, Resting& found) {
  std::vector<float> data(1 << 20);
  Collective sum;
  sum.kind = CollectiveKind::AllReduce;
  sum.extent = static_cast<std::int64_t>(data.size());
  sum.send = sum.recv = data.data();
  const std::shared_ptr<Communicator> communicator = world.communicator();
  communicator->issue(sum).wait();
  co_await sleep_for(std::chrono::milliseconds(100));  // progress has stopped
  Task<double> idle = percent_asleep();
  found.idle = co_await std::move(idle);
  Work first;
  if (world.rank() == 0) first = communicator->issue(sum);  // the others join later
  Task<double> in_flight = percent_asleep();
  found.in_flight = co_await std::move(in_flight);
  if (world.rank() != 0) first = communicator->issue(sum);
  first.wait();
}

void add_resting(Report& report, const WorldOptions& options, int self) {
  Resting found;
  const Program program = [&found](World& world) -> Task<void> {
    Resting unused;
    Task<void> measured = measure_resting(world, world.rank() == 0 ? found : unused);
    co_await std::move(measured);
  };
  run_ranks(options, program);
  if (self != 0) return;
  const auto add = [&report](const char* name, double percent, double target) {
    report.results.push_back({name, percent, "% of a core", target, false, {}, {}});
  };
  add("cpu_with_nothing_in_flight", found.idle, 0.2);
  add("cpu_with_a_collective_in_flight", found.in_flight, 5);
}

// The same with gloo between two processes, which PyTorch starts itself.
void add_pytorch(Report& report, const std::map<std::string, double>& pytorch, int kib) {
  const std::pair<const char*, const char*> kinds[] = {{"all_reduce", "gloo_all_reduce"},
                                                       {"P_to_R", "P_to_R"},
                                                       {"S0_to_R", "S0_to_R"},
                                                       {"P_to_S0", "P_to_S0"},
                                                       {"S0_to_S1", "S0_to_S1"}};
  for (const auto& [ours, theirs] : kinds) {
    const auto found = pytorch.find(fmt::format("{}KiB.{}.median_us", kib, theirs));
    const std::string name = fmt::format("{}_{}KiB", ours, kib);
    const Result* mine = report.find(name);
    if (found == pytorch.end() || mine == nullptr) continue;
    const double faster = found->second / mine->value;
    report.results.push_back({"pytorch_" + name, found->second, "us", {}, false, {}, {}});
    report.results.push_back(ratio("ratio_pytorch_" + name, faster, 1.0));
  }
}

}  // namespace

void bench_processes(Report& report, WorldOptions options, const Processes& several,
                     const std::string& peer) {
  options.ranks = several.all;
  report.note("ranks", several.all);
  report.note("mpi", several.mpi);
  std::map<std::string, double> pytorch;  // while the other processes sleep
  if (several.self == 0 && !peer.empty())
    pytorch = run_peer(peer, {"collectives", "--world", std::to_string(several.all)});
  add_resting(report, options, several.self);
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
    add_pytorch(report, pytorch, kib);
  }
}

}  // namespace coshard::bench
