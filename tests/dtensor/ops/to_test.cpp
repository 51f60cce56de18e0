// to: casts, and the gradients of casts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::Values;

TEST(To, CastsTheGradientBack) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3}, DType::BF16);
    x.set_requires_grad(true);
    const Tensor y = to(x, DType::F32);
    EXPECT_EQ(y.dtype(), DType::F32);
    run_backward(sum(y * y));
    EXPECT_EQ(x.grad().dtype(), DType::BF16);
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 4, 6}));
    EXPECT_FALSE(to(x, DType::I64).requires_grad());
    co_return;
  });
}

// Of rows of which a rank has one, as on ranks with more: memory of its own where one device has
// it.
TEST(Contiguous, SharesMemoryWhereOneDeviceDoes) {
  for (const std::int64_t rows : {2, 3, 4})
    on_ranks(2, [rows](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"m"});
      const DTensor x = distribute_tensor(counting(world, {rows, 4}), mesh, Shard(0));
      const auto shares = [&](const Tensor& view) {
        return contiguous(view).storage()->buffer == x.storage()->buffer;
      };
      EXPECT_TRUE(shares(x)) << rows;
      EXPECT_FALSE(shares(x.narrow(1, 0, 2))) << rows;
      EXPECT_FALSE(shares(x.t())) << rows;
      EXPECT_FALSE(shares(x.narrow(1, 1, 2).detach())) << rows;
      co_return;
    });
}

}  // namespace
}  // namespace coshard
