// Counts of waits in place, by operator, for each rank.
#include <gtest/gtest.h>

#include <coshard/dtensor/tensor/waits_in_place.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::placed;
using testing::Values;

TEST(WaitsInPlaceCount, IsByNameAndStartsAgainWhenCleared) {
  on_ranks(2, [](World& world) -> Task<void> {
    clear_waits_in_place();
    for (int i = 0; i <= world.rank(); ++i) count_wait_in_place("add");
    count_wait_in_place("data");
    const WaitsInPlace want{{"add", world.rank() + 1}, {"data", 1}};
    EXPECT_EQ(waits_in_place(), want);
    clear_waits_in_place();
    EXPECT_TRUE(waits_in_place().empty());
    co_return;
  });
}

TEST(WaitsInPlaceCount, AnOperatorOnWhatIsInFlightIsOne) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = placed(world, mesh, {4}, Shard(0));
    clear_waits_in_place();
    const DTensor awaited = co_await x.redistribute(Replicate());
    neg(awaited);
    const int before = waits_in_place().contains("neg") ? waits_in_place().at("neg") : 0;
    EXPECT_EQ(before, 0);
    const Redistribution later = x.redistribute(Replicate());
    EXPECT_EQ(neg(later.tensor()).to_vector(), (Values{-1, -2, -3, -4}));
  });
}

}  // namespace
}  // namespace coshard
