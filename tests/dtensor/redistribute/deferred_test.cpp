// Redistributions that are issued where they are awaited.
#include <coshard/dtensor/redistribute/redistribute.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(Redistribute, DeferredManyTimesFromOneSourceIsIssuedWhereItIsAwaited) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    const std::uint64_t before = mesh.communicator().issued();
    std::vector<Redistribution> later;
    {
      const DeferRedistributes deferring;
      for (int i = 0; i < 9; ++i) later.push_back(x.redistribute(Replicate()));
    }
    EXPECT_EQ(mesh.communicator().issued(), before);
    for (const Redistribution& one : later) {
      const DTensor y = co_await one;
      EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 2, 3, 4}));
    }
  });
}

TEST(Redistribute, OfAWeightIsNotReachedByTheOptimizersStep) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    w.set_requires_grad(true);
    SGD sgd({w}, {.lr = 1});
    AdamW adamw({w}, {.lr = 1});
    for (Optimizer* optimizer : {static_cast<Optimizer*>(&sgd), static_cast<Optimizer*>(&adamw)}) {
      optimizer->zero_grad();
      run_backward(sum(w * w));
      const std::vector<double> before = full_tensor(w.detach()).to_vector();
      const Redistribution all = w.detach().redistribute(Replicate());
      co_await optimizer->step();
      const DTensor y = co_await all;
      EXPECT_EQ(y.to_vector(), before);
    }
  });
}

}  // namespace
}  // namespace coshard
