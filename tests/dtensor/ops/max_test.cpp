// max and argmax along a dimension: values, indices, gradients.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(MaxAlong, GivesTheFirstOfEqualsAndItsIndex) {
  alone([](World& world) {
    Tensor x = values(world, {2, 3}, {1, 5, 5, -2, 0, -7});
    x.set_requires_grad(true);
    const ValuesAndIndices most = max(x, 1);
    EXPECT_EQ(most.values.to_vector(), (Values{5, 0}));
    EXPECT_EQ(most.indices.to_vector(), (Values{1, 1}));
    EXPECT_EQ(most.indices.dtype(), DType::I64);
    EXPECT_EQ(min(x, 0).indices.to_vector(), (Values{1, 1, 1}));
    EXPECT_EQ(argmax(x).item(), 1);
    EXPECT_EQ(argmin(x).item(), 5);
    run_backward(sum(most.values));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 1, 0, 0, 1, 0}));
  });
}

TEST(MaxAlong, AnotherDimensionStaysCutAndIndicesAreThoseOfTheWhole) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3}, Shard(1));
    const ValuesAndIndices most = max(x, 0);
    EXPECT_EQ(most.values.layout(), Layout(Shard(0)));
    EXPECT_EQ(most.indices.layout(), Layout(Shard(0)));
  });
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor rows = placed(world, mesh, {4, 3}, Shard(0));
    EXPECT_EQ(full_tensor(max(rows, 0).indices).to_vector(), (Values{3, 3, 3}));
    EXPECT_EQ(full_tensor(argmin(rows, 0)).to_vector(), (Values{0, 0, 0}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
