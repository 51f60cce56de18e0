// What the tape keeps of a call: what its backward reads, and nothing else.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::Values;

TEST(OpRecord, KeepsWhatBackwardReadsAndLetsTheRestGo) {
  alone([](World& world) {
    Tensor weight = counting(world, {3});
    weight.set_requires_grad(true);
    std::weak_ptr<Storage> added, multiplied;
    Tensor y;
    {
      const Tensor a = counting(world, {3}), b = counting(world, {3});
      added = a.storage();
      multiplied = b.storage();
      y = mul(add(weight, a), b);
    }
    EXPECT_TRUE(added.expired());
    EXPECT_FALSE(multiplied.expired());
    run_backward(sum(y));
    EXPECT_TRUE(multiplied.expired());
    EXPECT_EQ(weight.grad().to_vector(), (Values{1, 2, 3}));
  });
}

TEST(OpRecord, OfInputsWithoutGradientsThereIsNone) {
  alone([](World& world) {
    const Tensor x = counting(world, {3});
    EXPECT_FALSE(mul(x, x).requires_grad());
    Tensor leaf = counting(world, {3});
    leaf.set_requires_grad(true);
    EXPECT_TRUE(mul(x, leaf).requires_grad());
    EXPECT_FALSE(gt(leaf, x).requires_grad());
  });
}

}  // namespace
}  // namespace coshard
