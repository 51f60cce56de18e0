// What is kept for backward, and that it may not change.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include "dtensor/tape/saved.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::refusal;
using testing::Values;

TEST(SavedTensor, IsGivenBackOffTheTapeUntilItIsReleased) {
  alone([](World& world) {
    Tensor x = counting(world, {2});
    x.set_requires_grad(true);
    Saved saved(x);
    EXPECT_TRUE(saved.defined());
    EXPECT_EQ(saved.get("mul").storage(), x.storage());
    EXPECT_FALSE(saved.get("mul").requires_grad());
    saved.release();
    EXPECT_FALSE(saved.defined());
    EXPECT_FALSE(Saved().defined());
    EXPECT_FALSE(Saved(Tensor()).get("mul").defined());
  });
}

TEST(SavedTensor, ThatWasWrittenToIsRefusedByTheNameOfTheOperator) {
  alone([](World& world) {
    const Tensor x = counting(world, {2});
    const Saved before(x);
    add_(x, 1);
    const Saved after(x);
    EXPECT_EQ(refusal([&] { before.get("mul"); }).find("mul: "), 0U);
    EXPECT_EQ(after.get("mul").to_vector(), (Values{2, 3}));
  });
}

}  // namespace
}  // namespace coshard
