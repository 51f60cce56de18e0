#include "dtensor/distribute/replicas.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/replica_guard.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "dtensor/tensor/local.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

// What awaiting `task` says; "" when it does not fail.
Task<std::string> said(Task<void> task) {
  std::string text;
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    text = error.what();
  }
  co_return text;
}

// Taken for a replica, whatever each rank has.
DTensor claimed(World& world, const DeviceMesh& mesh, const Layout& layout, double scale) {
  return from_local(counting(world, {3}, DType::F32, scale), mesh, layout);
}

Task<std::string> step_with_gradient(Optimizer& optimizer, DTensor gradient) {
  optimizer.parameters()[0].set_grad(gradient);
  Task<std::string> stepped = said(optimizer.step());
  co_return co_await std::move(stepped);
}

TEST(VerifyReplicas, NamesTheFirstTensorAndARankThatDiffersOnEveryRank) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    std::vector<NamedTensor> tensors{{"same", claimed(world, mesh, Replicate(), 1)},
                                     {"cut", claimed(world, mesh, Shard(0), world.rank())},
                                     {"plain", counting(world, {2}, DType::F32, world.rank())}};
    CountingObserver seen(world);
    Task<std::string> fine = said(verify_replicas(tensors));
    EXPECT_EQ(co_await std::move(fine), "");
    const double own = world.rank() == 2 ? 1.5 : 1;
    tensors.push_back({"other", claimed(world, mesh, Replicate(), own)});
    tensors.push_back({"later", claimed(world, mesh, Replicate(), world.rank())});
    Task<std::string> failing = said(verify_replicas(tensors));
    const std::string text = co_await std::move(failing);
    const std::uint64_t same = bits_hash(counting(world, {3}, DType::F32, 1));
    const std::uint64_t other = bits_hash(counting(world, {3}, DType::F32, 1.5));
    EXPECT_NE(text.find(str_cat("replicas differ: other f32[3] R on tp=4 of rank 2 (hash ", other,
                                ") differs from that of rank 0 (hash ", same, ");")),
              std::string::npos)
        << text;
    EXPECT_EQ(seen.total(), 0);
  });
}

TEST(VerifyReplicas, ComparesAlongReplicatedDimensionsOnly) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Layout layout(Replicate(), Shard(0));
    const int column = mesh.local_rank("tp"), row = mesh.local_rank("dp");
    std::vector<NamedTensor> tensors{{"cut", claimed(world, mesh, layout, column)}};
    Task<std::string> fine = said(verify_replicas(tensors));
    EXPECT_EQ(co_await std::move(fine), "");
    tensors[0].tensor = claimed(world, mesh, layout, column + (row == 1 && column == 1 ? 10 : 0));
    Task<std::string> failing = said(verify_replicas(tensors));
    const std::string text = co_await std::move(failing);
    EXPECT_NE(text.find("differs from that of rank 1 (hash "), std::string::npos) << text;
  });
}

TEST(ReplicaCheck, AnOptimizerFindsGradientsThatDifferAtItsFirstTwoStepsAndEveryNth) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor x = claimed(world, mesh, Replicate(), 1);
    x.set_requires_grad(true);
    SGD optimizer({x}, {.lr = 0.5});
    optimizer.check_replicas = 4;
    CountingObserver seen(world);
    for (int step = 1; step <= 8; ++step) {
      const bool finds = step <= 2 || step % 4 == 0;
      const std::vector<double> before = x.to_vector();
      Task<std::string> other =
          step_with_gradient(optimizer, claimed(world, mesh, Replicate(), world.rank()));
      const std::string text = co_await std::move(other);
      EXPECT_EQ(text.find("replicas differ: the gradient of parameter 0") == 0, finds) << text;
      EXPECT_EQ(x.to_vector() == before, finds || world.rank() == 0);  // where it is 0
    }
    EXPECT_EQ(seen.total(), 0);
  });
}

TEST(ReplicaCheck, IsOffForZeroAndLetsPartialGradientsBeSummed) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor x = claimed(world, mesh, Replicate(), 1);
    x.set_requires_grad(true);
    SGD off({x}, {.lr = 0}), on({x}, {.lr = 0});
    off.check_replicas = 0;
    Task<std::string> unseen =
        step_with_gradient(off, claimed(world, mesh, Replicate(), world.rank()));
    EXPECT_EQ(co_await std::move(unseen), "");
    Task<std::string> summed =
        step_with_gradient(on, claimed(world, mesh, Partial(), world.rank()));
    EXPECT_EQ(co_await std::move(summed), "");
  });
}

}  // namespace
}  // namespace coshard
