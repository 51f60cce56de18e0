#include "dtensor/redistribute/issue.h"

#include <gtest/gtest.h>

#include "dtensor/redistribute/in_flight.h"
#include "runtime/comm/collective.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(Issue, AllReduceIsInPlaceAndOverTheNamedReduction) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor largest = counting(world, {2}, DType::F64, world.rank() + 1.0);
    const void* memory = largest.address();
    issue_all_reduce(mesh.communicator(0), Reduce::Max, largest, {"test"});
    EXPECT_EQ(largest.to_vector(), (std::vector<double>{3, 6}));
    EXPECT_EQ(largest.address(), memory);
    co_return;
  });
}

TEST(Issue, BroadcastLeavesTheSourceAloneOnEveryMeshDimension) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const int m : {0, 1}) {
      const Tensor mine = counting(world, {3}, DType::F64, world.rank() + 1.0);
      const Tensor got = broadcast_along(mine, mesh, m, 1, "test");
      // Rank 1 of dp is the lower row (2, 3), rank 1 of tp the right column (1, 3).
      const int root = m == 0 ? 2 + world.rank() % 2 : world.rank() / 2 * 2 + 1;
      EXPECT_EQ(got.to_vector(), counting(world, {3}, DType::F64, root + 1.0).to_vector());
      EXPECT_EQ(mine.to_vector(), counting(world, {3}, DType::F64, world.rank() + 1.0).to_vector());
    }
    co_return;
  });
}

TEST(Issue, ATransferBeginsOnceWhatItSendsHasArrivedAndKeepsBothBuffers) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor all = Tensor::empty(world.device(), Shape{4}, DType::F64);
    {
      const Tensor sum = counting(world, {2});
      issue_all_reduce(mesh.communicator(0), Reduce::Sum, sum, {"sum"});
      Collective gather;
      gather.kind = CollectiveKind::AllGather;
      gather.extent = 4;
      gather.label = "gather";
      issue_into(mesh.communicator(0), gather, sum, all);
    }
    EXPECT_EQ(all.to_vector(), (std::vector<double>{2, 4, 2, 4}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
