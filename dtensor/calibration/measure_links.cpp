#include "dtensor/calibration/measure_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/zip.hpp>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/mesh/calibration.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace views = ranges::views;
namespace {

// Rounds to two significant digits, so that runs agree.
double rounded_figure(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

}  // namespace

Task<double> time_to_gather(DeviceMesh line, std::int64_t count, int runs, int warm_up,
                            bool by_shards) {
  World& world = line.world();
  const auto spec = make_spec(line, Layout(Shard(0)), Shape{count * line.size()});
  const Tensor part = Tensor::empty(world.device(), spec, DType::F32);
  double shortest = std::numeric_limits<double>::infinity();
  for (int run = -warm_up; run < runs; ++run) {
    const std::int64_t begin = world.executor().now();
    const Redistribution gathered = redistribute(part, Replicate(), {.by_shards = by_shards});
    co_await gathered.host();
    const auto time = static_cast<double>(world.executor().now() - begin);
    if (run >= 0) shortest = std::min(shortest, time);
  }
  co_return line.contains_this_rank() ? shortest : 0;
}

Task<std::vector<double>> largest_of_all(World& world, std::vector<double> found) {
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"world"});
  const auto count = static_cast<std::int64_t>(found.size());
  const Tensor own = Tensor::from_values(world.device(), Shape{count}, DType::F64, found);
  const Tensor terms = own.with_spec(make_spec(all, Layout(Partial(Reduce::Max)), own.shape()));
  const Redistribution most = terms.redistribute(Replicate());
  const Tensor whole = co_await most;
  co_await most.host();
  co_return whole.to_vector();
}

Task<DeviceMesh> measure_links(DeviceMesh mesh, CallSite site) {
  const UserCall user(site);
  constexpr int kRuns = 11;
  constexpr std::int64_t kSmall = 1 << 6, kLarge = 1 << 20;  // floats per rank
  const std::array<std::int64_t, 2> counts{kSmall, kLarge};
  std::vector<double> times;
  for (const std::string& name : mesh.names()) {
    const DeviceMesh line = mesh[name];
    for (const std::int64_t count : counts) {
      Task<double> timed = time_to_gather(line, count, kRuns, 2);
      times.push_back(co_await std::move(timed) * 1e-3);
    }
  }
  Task<std::vector<double>> agreeing = largest_of_all(mesh.world(), times);
  times = co_await std::move(agreeing);
  std::vector<Link> links(mesh.shape().size());
  for (auto&& [link, size, time] : views::zip(links, mesh.shape(), times | views::chunk(2))) {
    if (size == 1) continue;
    const double small = time[0], large = time[1];
    const double bytes = static_cast<double>(size_of(DType::F32) * (kLarge - kSmall)) * (size - 1);
    link.latency = rounded_figure(small);
    link.bytes_per_us = rounded_figure(bytes / std::max(time_of_moving(large, small), 1e-3));
  }
  co_return mesh.with_links(std::move(links));
}

}  // namespace coshard
