// What nvtx_test runs under the recording tool. usage: nvtx_program good|failing
// Prints how many collectives its ranks issued.
#include <atomic>
#include <iostream>
#include <string>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/mlp.h>
#include "tests/support/device.h"

namespace {

using namespace coshard;

std::atomic<int> issued = 0;

class Count final : public Observer {
 public:
  explicit Count(World& world) : world_(world) { world.add_observer(this); }
  ~Count() override { world_.remove_observer(this); }
  void issued(const CommEvent&, std::int64_t) override { ++::issued; }

 private:
  World& world_;
};

Task<double> whole_sum(DTensor x) {
  Redistribution moving = x.redistribute(Replicate());
  const DTensor whole = co_await std::move(moving);
  co_return sum(whole).item();
}

Task<void> good(World& world) {
  const Count count(world);
  DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor x = distribute_tensor(ones(world.device(), {6, 4}), mesh, Shard(0), std::nullopt);
  auto both = when_all(whole_sum(x), whole_sum(x));
  co_await std::move(both);
  Redistribution parts = x.redistribute(Replicate());
  std::optional<ArrivedShard> shard = co_await parts.next_shard();
  while (shard) shard = co_await parts.next_shard();
  x.redistribute(Shard(1));  // issued and never awaited
  nn::MLP mlp({.dim = 8, .ffn = 16}, world);
  Tensor in = randn(world.device(), {4, 8});
  Task<Tensor> forward = mlp.forward(in);
  Tensor out = co_await std::move(forward);
  co_await backward(sum(out));
}

Task<void> failing(World& world) {
  const Count count(world);
  DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor x = distribute_tensor(ones(world.device(), {6, 4}), mesh, Shard(0), std::nullopt);
  nn::MLP mlp({.dim = 8, .ffn = 16}, world);
  Task<double> both = whole_sum(x);
  co_await std::move(both);
  Redistribution in_flight = x.redistribute(Replicate());
  if (world.rank() == 1) {
    Tensor wrong = ones(world.device(), {4, 9});
    Task<Tensor> forward = mlp.forward(wrong);
    co_await std::move(forward);
  }
  co_await std::move(in_flight);
  Task<double> never = whole_sum(x);
  co_await std::move(never);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "good";
  try {
    run_ranks(coshard::testing::test_options(2), what == "failing" ? failing : good);
  } catch (const Error& error) {
    if (what != "failing") {
      std::cerr << error.what() << "\n";
      return 1;
    }
  }
  std::cout << issued.load() << std::endl;
}
