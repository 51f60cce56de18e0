#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

WorldOptions on_relay() {
  WorldOptions options;
  options.device = parse_device_kind("relay");
  return options;
}

TEST(RelayDevice, IsSelectedByItsWordAndCopies) {
  run_ranks(on_relay(), [](World& world) -> Task<void> {
    EXPECT_EQ(world.device()->name(), "relay");
    const double there[2] = {1.5, -2};
    double back[2] = {};
    const std::shared_ptr<Buffer> buffer = world.device()->make_buffer(sizeof there);
    world.device()->upload(buffer->data(), there, sizeof there);
    world.device()->download(back, buffer->data(), sizeof back);
    EXPECT_EQ(back[0], 1.5);
    EXPECT_EQ(back[1], -2);
    co_return;
  });
}

TEST(RelayDevice, ComputesByItsKernelsAndReduces) {
  run_ranks(on_relay(), [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    const Tensor total = sum(x * x);
    EXPECT_EQ(total.layout(), Layout(Partial()));
    const DTensor whole = co_await total.redistribute(Replicate());
    EXPECT_EQ(whole.device()->kind().name(), "relay");
    EXPECT_EQ(whole.to_vector(), std::vector<double>{204});
  });
}

}  // namespace
}  // namespace coshard::testing
