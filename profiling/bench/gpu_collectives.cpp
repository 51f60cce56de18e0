// Bandwidth of collectives between GPUs, as in NCCL's tests: the minimum that passes through each
// rank's links ("busbw" in nccl-tests/doc/PERFORMANCE.md).
#include <fmt/format.h>

#include <coshard/dtensor/distribute/random.h>
#include "profiling/bench/gpu_cases.h"

namespace coshard::bench {
namespace {

struct BusLoad {
  const char* name;
  CollectiveKind kind;
  int passes;  // of the tensor over the links, without each rank's own part
};
constexpr BusLoad kBusLoads[] = {{"all_reduce", CollectiveKind::AllReduce, 2},
                                 {"all_gather", CollectiveKind::AllGather, 1},
                                 {"reduce_scatter", CollectiveKind::ReduceScatter, 1},
                                 {"all_to_all", CollectiveKind::AllToAll, 1}};

// For a tensor [ranks, ranks, part] of f32; all_to_all: one such tensor per rank.
Collective collective_of(CollectiveKind kind, int ranks, std::int64_t part) {
  Collective call;
  call.kind = kind;
  call.extent = ranks;
  call.inner = ranks * part;
  if (kind == CollectiveKind::AllToAll) call.scatter_extent = ranks;
  return call;
}

}  // namespace

Task<void> measure_collective_bandwidth(World& world, const GpuSizes& sizes, GpuResults& results) {
  const auto communicator = world.communicator();
  const int ranks = communicator->size();
  for (const std::int64_t kib : sizes.collective_kib) {
    const std::int64_t part = kib * 256 / (ranks * ranks);
    const Tensor from = zeros(world.device(), Shape{ranks * ranks * part});
    const Tensor to = zeros(world.device(), from.shape());
    for (const BusLoad& one : kBusLoads) {
      Collective call = collective_of(one.kind, ranks, part);
      call.send = from.data();
      call.recv = to.data();
      call.keep_send = from.storage()->buffer;
      call.keep_recv = to.storage()->buffer;
      const auto issue = [&] { communicator->issue(call).wait(); };
      const RobustStats us = timed_on_device(*world.device(), issue, sizes.steps);
      const double moved = one.passes * 4.0 * static_cast<double>(part * ranks * (ranks - 1));
      const auto rate = [moved](double microseconds) { return moved / microseconds / 1e3; };
      const RobustStats stats = {rate(us.median), rate(us.max), rate(us.min), 0, us.count};
      results.push_back(
          measured(fmt::format("{}_{}KiB", one.name, kib), stats, "GB/s", std::nullopt, true));
    }
  }
  co_return;
}

}  // namespace coshard::bench
