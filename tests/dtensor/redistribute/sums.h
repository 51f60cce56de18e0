#pragma once
// Sums over ranks whose result says who took part: what tests of order and lateness communicate.
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::testing {

// This rank's term of a sum over `mesh`: awaited as Replicate it is value * mesh.size().
inline DTensor term(World& world, const DeviceMesh& mesh, double value) {
  const std::vector<double> values{value};
  return from_local(Tensor::from_values(world.device(), {1}, DType::F64, values), mesh, Partial());
}

inline Task<void> await_sum(World& world, DeviceMesh mesh, double value, double& sum) {
  const Redistribution issued = term(world, mesh, value).redistribute(Replicate());
  const Tensor total = co_await issued;
  sum = total.item();
}

// In the program's own code: neither the executor nor transfers go on meanwhile.
inline void be_busy(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }
// Until `so`, or for `most`: a rank in another process cannot tell.
template <class So>
void be_busy_until(const So& so, std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!so() && std::chrono::steady_clock::now() < end) be_busy(std::chrono::milliseconds(1));
}

// Two meshes of ranks 0 and 1 with a communicator each.
inline DeviceMesh one_mesh(World& world) {
  return DeviceMesh::from_ranks(world, {0, 1}, {2}, {"one"});
}
inline DeviceMesh other_mesh(World& world) {
  return DeviceMesh::from_ranks(world, {1, 0}, {2}, {"other"});
}

}  // namespace coshard::testing
