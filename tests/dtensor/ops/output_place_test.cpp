#include "dtensor/ops/output_place.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(OutputPlace, HoldsTheFirstOutputThatFits) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor memory = zeros(world.device(), Shape{10}, DType::F64);
    const Tensor part = memory.view_as(Shape{6}, row_major(Shape{6}), 4, nullptr);
    const Tensor x = counting(world, {2, 3}), small = counting(world, {2});
    {
      const OutputPlace place(part);
      const Tensor other = add(small, small);  // another number of elements
      EXPECT_NE(other.storage()->buffer, memory.storage()->buffer);
      const Tensor twice = add(x, x);
      EXPECT_EQ(twice.data(), part.data());
      EXPECT_EQ(twice.shape(), (Shape{2, 3}));
      const Tensor again = add(x, x);  // taken already
      EXPECT_NE(again.storage()->buffer, memory.storage()->buffer);
      EXPECT_EQ(again.to_vector(), twice.to_vector());
    }
    EXPECT_EQ(memory.to_vector(), (std::vector<double>{0, 0, 0, 0, 2, 4, 6, 8, 10, 12}));
    {
      const OutputPlace outer(part);
      {
        const OutputPlace none{Tensor()};
        EXPECT_NE(add(x, x).storage()->buffer, memory.storage()->buffer);
      }
      EXPECT_EQ(mul(x, x).storage()->buffer, memory.storage()->buffer);
    }
    EXPECT_NE(add(x, x).storage()->buffer, memory.storage()->buffer);
    co_return;
  });
}

// Element by element, an operator may write over what it reads.
TEST(OutputPlace, MayBeAnInputOfASum) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {33}), y = counting(world, {33}, DType::F64, 10);
    {
      const OutputPlace place(x);
      const Tensor sum = add(x, y);
      EXPECT_EQ(sum.data(), x.data());
    }
    EXPECT_EQ(x.to_vector()[32], 33 * 11);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
