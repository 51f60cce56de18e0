// softmax and log_softmax.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::placed;
using testing::without_moving;

TEST(Softmax, CastsFirst) {
  on_ranks(1, [](World&) -> Task<void> {
    const Tensor x = randn({4, 5}, DType::BF16, true);
    const Tensor y = softmax(x, -1, DType::F32);
    EXPECT_EQ(y.dtype(), DType::F32);
    EXPECT_EQ(y.to_vector(), softmax(x.to(DType::F32), -1).to_vector());
    EXPECT_EQ(x.log_softmax(0, DType::F64).dtype(), DType::F64);
    co_await (y * y).sum().backward();
    EXPECT_EQ(x.grad().dtype(), DType::BF16);
  });
}

TEST(Softmax, OfRowsThatAreCutInStridesStaysThere) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const Layout strided(StridedShard(0, 2));
    const DTensor x = placed(world, mesh, {4, 3}, strided);
    EXPECT_EQ(softmax(x, 1).layout(), strided);
    EXPECT_EQ(log_softmax(x, 1).layout(), strided);
  });
}

}  // namespace
}  // namespace coshard
