// Gradients through views by their place in memory.
#include <gtest/gtest.h>

#include "dtensor/ops/strided.h"
#include "tests/dtensor/ops/expect.h"

#include <coshard/dtensor/backward/backward.h>

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::Values;
using testing::values;

TEST(StridedMaps, TakePutAndMaskWhatAViewHasOfItsBase) {
  alone([](World& world) {
    const Tensor base = counting(world, {2, 3});
    const ViewPlace place(base, slice(base, 1, 1, 3));
    EXPECT_EQ(place.offset, 1);
    EXPECT_EQ(place.extent, 6);
    EXPECT_EQ(gathered(base, place).to_vector(), (Values{2, 3, 5, 6}));
    const Tensor y = values(world, {2, 2}, {10, 20, 30, 40});
    EXPECT_EQ(scattered(y, place).to_vector(), (Values{0, 10, 20, 0, 30, 40}));
    EXPECT_EQ(masked(base, place).to_vector(), (Values{1, 0, 0, 4, 0, 0}));
  });
}

TEST(StridedMaps, ElementsOfAStretchedViewAddUp) {
  alone([](World& world) {
    const Tensor base = counting(world, {2, 1});
    const ViewPlace place(base, expand(base, {2, 3}));
    EXPECT_EQ(scattered(counting(world, {2, 3}), place).to_vector(), (Values{6, 15}));
    EXPECT_EQ(gathered(base, place).to_vector(), (Values{1, 1, 1, 2, 2, 2}));
  });
}

TEST(StridedMaps, HaveTheGradientOfTheMapTheOtherWayRound) {
  alone([](World& world) {
    Tensor x = counting(world, {2, 2});
    x.set_requires_grad(true);
    const ViewPlace place(x.detach(), transpose(x.detach(), 0, 1));
    run_backward(sum(mul(gathered(x, place), counting(world, {2, 2}))));
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 2, 4}));
  });
}

}  // namespace
}  // namespace coshard
