#include <algorithm>
#include <array>
#include <limits>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/ops/decision.h"
#include "dtensor/redistribute/issue.h"
#include "profiling/bench/benches.h"
#include "profiling/bench/crowds.h"
#include "profiling/bench/peer.h"
#include "profiling/bench/plan_misses.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {
namespace {

constexpr int kCalls = 100'000;

Task<int> finished(int value) { co_return value; }

Task<RobustStats> time_task() {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      const int value = co_await finished(i);
      CS_REQUIRE(value == i, "bench: a task gave ", value, " for ", i);
    }
    rounds.push_back(seconds_since(begin) / kCalls * 1e9);
  }
  co_return robust_stats(rounds);
}

Task<void> yield_often() {
  for (int i = 0; i < kCalls; ++i) co_await yield();
}

Task<RobustStats> time_yield() {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    Task<void> both = when_all(yield_often(), yield_often());
    co_await std::move(both);
    rounds.push_back(seconds_since(begin) / (2 * kCalls) * 1e9);
  }
  co_return robust_stats(rounds);
}

using Results = std::vector<Result>;

// `b` minus `a`, timed alternately in each round.
template <class A, class B>
RobustStats difference(const A& a, const B& b, int calls) {
  std::vector<double> rounds;
  for (int round = 0; round < 3 * kRounds; ++round) {
    const double first = timed(a, calls, 5).median;
    rounds.push_back(timed(b, calls, 5).median - first);
  }
  return robust_stats(rounds);
}

// A cached redistribute of 4 KiB, compared with its bare collective between existing buffers.
void above_the_collective(World& world, const DeviceMesh& mesh, Results& results) {
  const NoGradGuard no_grad;
  const Shape rows{16 * mesh.size(), 64 / mesh.size()};
  const DTensor x = distribute_tensor(randn(world.device(), rows), mesh, Shard(0), std::nullopt);
  const Tensor whole = zeros(world.device(), rows);
  Collective call;
  call.kind = CollectiveKind::AllGather;
  call.extent = rows[0];
  call.inner = rows[1];
  call.counts = std::make_shared<const std::vector<std::int64_t>>(mesh.size(), 16);
  const Tensor part = x.raw_local();
  const auto bare = [&] {
    issue_into(mesh.communicator(0), call, part, whole);
    whole.wait();
  };
  const auto redistributed = [&] { x.redistribute(Replicate()).tensor().wait(); };
  results.push_back(measured("all_gather_4KiB", timed(bare, 400), "us"));
  results.push_back(measured("redistribute_S0_to_R_4KiB", timed(redistributed, 400), "us"));
  results.push_back(measured("redistribute_above_its_collective",
                             difference(bare, redistributed, 100), "us", 0.3));
}

void tensor_calls(const Tensor& a, const Tensor& b, const DeviceMesh& mesh, Results& results) {
  const NoGradGuard no_grad;
  const auto add_result = [&results](const char* name, const RobustStats& stats,
                                     std::optional<double> target = std::nullopt) {
    results.push_back(measured(name, stats, "us", target));
  };
  const DTensor da = from_local(a, mesh, Shard(0));
  const DTensor db = from_local(b, mesh, Shard(0));
  const DTensor w = from_local(b, mesh, Replicate());
  const DTensor few = from_local(ones(a.device(), Shape{4}), mesh, Shard(0));
  const DTensor yes = eq(few, few);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  add_result("tensor_add", timed([&] { return add(a, b); }, 2000));
  add_result("dtensor_add", timed([&] { return add(da, db); }, 1000));
  add_result("dtensor_add_above_tensor_add",
             difference([&] { return add(a, b); }, [&] { return add(da, db); }, 500), 0.5);
  add_result("tensor_matmul", timed([&] { return matmul(a, b); }, 2000));
  add_result("dtensor_matmul_S0_R", timed([&] { return matmul(da, w); }, 1000));
  add_result("tensor_linear", timed([&] { return linear(a, b); }, 2000));
  add_result("dtensor_linear_S0_R", timed([&] { return linear(da, w); }, 1000));
  add_result("dtensor_mul_scalar", timed([&] { return mul(da, 2.0); }, 1000));
  add_result("dtensor_dropout_of_4", timed([&] { return dropout(few, 0.5); }, 1000));
  add_result("dtensor_add_of_4", timed([&] { return add(few, few); }, 1000));
  add_result("dtensor_masked_fill_nan_of_4",
             timed([&] { return masked_fill(few, yes, nan); }, 1000));
  add_result("redistribute_same", timed([&] { return da.redistribute(Shard(0)); }, 2000), 0.05);
  add_result("redistribute_R_to_S_no_comm", timed([&] { return w.redistribute(Shard(0)); }, 1000));
  add_result("to_local", timed([&] { return to_local(da); }, 2000));
  add_result("from_local", timed([&] { return from_local(a, mesh, Shard(0)); }, 2000), 0.3);
}

// The cost of a decision: an operator's first call with these shapes and layouts, plans cached.
void decision_misses(const Tensor& a, const DeviceMesh& mesh, Results& results) {
  const DTensor x = from_local(a, mesh, Shard(0)), w = from_local(a, mesh, Shard(1));
  const auto miss = [&](std::string_view name, std::span<const Tensor> in) {
    const auto ops = all_operators();
    const auto found = std::ranges::find(ops, name, &OpDef::name);
    CS_REQUIRE(found != ops.end(), "bench: unknown operator ", name);
    results.push_back(measured(str_cat("decision_miss_", name),
                               timed([&] { return decide(**found, in, {}, false); }, 1000), "us"));
  };
  miss("matmul", std::array{x, w});
  miss("linear", std::array{x, x, Tensor()});  // a weight is [out, in]
}

// What a product takes in each dtype, where it is more than dispatch.
void products(World& world, Results& results) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    const Tensor x = randn(world.device(), Shape{512, 512}, dtype);
    results.push_back(measured(str_cat("tensor_matmul_512_", dtype),
                               timed([&] { return matmul(x, x); }, 5, 2), "us"));
  }
}

Task<void> measure_dispatch(World& world, Results& results) {
  const RobustStats task = co_await time_task();
  const RobustStats yields = co_await time_yield();
  DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const Tensor a = randn(world.device(), Shape{64, 64});
  const Tensor b = randn(world.device(), Shape{64, 64});
  Results mine;
  mine.push_back(measured("task_call_and_await", task, "ns", 10));
  mine.push_back(measured("yield_between_two_ready_tasks", yields, "ns", 10));
  tensor_calls(a, b, mesh, mine);
  products(world, mine);
  decision_misses(a, mesh, mine);
  above_the_collective(world, mesh, mine);
  Tensor x = from_local(a, mesh, Shard(0)).detach();
  x.set_requires_grad(true);
  const DTensor db = from_local(b, mesh, Shard(0));
  mine.push_back(measured("dtensor_add_grad", timed([&] { return add(x, db); }, 1000), "us"));
  if (world.rank() == 0) results = std::move(mine);
}

// Adds the peer's medians, and how many times faster each of ours is.
void beside_peer(Report& report, const std::map<std::string, double>& peer) {
  const Results ours = report.results;
  for (const Result& result : ours) {
    const auto found = peer.find(result.name + ".median_us");
    if (found == peer.end()) continue;
    report.results.push_back({"pytorch_" + result.name, found->second, "us", {}, false, {}, {}});
    report.results.push_back(ratio("ratio_" + result.name, found->second / result.value, {}));
  }
}

}  // namespace

Report bench_dispatch(const DispatchOptions& options) {
  Report report("dispatch");
  report.note("ranks", options.ranks);
  WorldOptions world_options = options.world;
  world_options.ranks = options.ranks;
  world_options.threads = 1;
  Results results;
  const Program program = [&results](World& world) { return measure_dispatch(world, results); };
  run_ranks(world_options, program);
  report.results = std::move(results);
  for (Result& result : time_plan_misses()) report.results.push_back(std::move(result));
  if (options.world.device == DeviceKind::Cpu && options.world.communicator == "local") {
    report.results.push_back(time_barrier(64));
    report.results.push_back(time_sums_on_shared_threads(1024, 2));
  }
  if (!options.peer.empty()) {
    const std::vector<std::string> arguments = {"dispatch", "--world",
                                                std::to_string(options.ranks)};
    beside_peer(report, run_peer(options.peer, arguments));
  }
  return report;
}

}  // namespace coshard::bench
