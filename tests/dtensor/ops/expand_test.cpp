// expand and broadcasting: shared memory, summed gradients, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Expand, StretchesOnesWithoutACopyAndSumsTheGradient) {
  alone([](World& world) {
    Tensor x = values(world, {2, 1}, {3, 4});
    x.set_requires_grad(true);
    const Tensor y = expand(x, {3, -1, 2});
    EXPECT_EQ(y.shape(), (Shape{3, 2, 2}));
    EXPECT_EQ(y.storage(), x.storage());
    EXPECT_EQ(y.to_vector(), (Values{3, 3, 4, 4, 3, 3, 4, 4, 3, 3, 4, 4}));
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), (Values{6, 6}));
    EXPECT_EQ(refusal([&] { expand(x, {3, 2}); }).find("expand"), 0U);
  });
}

TEST(Expand, ACutDimensionStaysCutBehindNewOnes) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 1}, Shard(0));
    EXPECT_EQ(expand(x, {3, 4, 5}).layout(), Layout(Shard(1)));
  });
}

// A dimension of one element that is sharded has to be gathered first: a copy that follows x.
TEST(Expand, OfACutOneFollowsWhatItShows) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"m"});
    DTensor x = placed(world, mesh, {1, 2}, Shard(0));
    x.set_requires_grad(true);
    const DTensor scaled = x * 1.0, y = expand(scaled, {2, 2});
    mul_(scaled, 10.0);
    run_backward(sum(y * y));
    const Values want = x.detach().full_tensor().to_vector();
    EXPECT_EQ(x.grad().full_tensor().to_vector(), (Values{400 * want[0], 400 * want[1]}));
    EXPECT_EQ((y.detach() * 1.0).full_tensor().to_vector(),
              (Values{10 * want[0], 10 * want[1], 10 * want[0], 10 * want[1]}));
    EXPECT_NE(refusal([&] { fill_(y, 1); }).find("clone()"), std::string::npos);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
