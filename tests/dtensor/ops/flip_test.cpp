// flip: values, its own gradient, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/view_cases.h"

namespace coshard {
namespace {

using testing::alone;
using testing::check_views;
using testing::counting;
using testing::refusal;
using testing::Values;
using testing::ViewFunction;

TEST(Flip, TurnsTheNamedDimensionsAround) {
  alone([](World& world) {
    Tensor x = counting(world, {2, 3});
    x.set_requires_grad(true);
    EXPECT_EQ(flip(x, {1}).to_vector(), (Values{3, 2, 1, 6, 5, 4}));
    EXPECT_EQ(flip(x, {0, -1}).to_vector(), (Values{6, 5, 4, 3, 2, 1}));
    run_backward(sum(mul(flip(x, {1}), counting(world, {2, 3}))));
    EXPECT_EQ(x.grad().to_vector(), (Values{3, 2, 1, 6, 5, 4}));
    EXPECT_EQ(refusal([&] { flip(x, {0, 0}); }).find("flip"), 0U);
  });
}

TEST(Flip, LeavesOtherDimensionsCut) {
  const ViewFunction turned = [](const Tensor& x) { return flip(x, {0}); };
  check_views(2, {{"flip", {3, 4}, Shard(1), turned, Layout(Shard(1))},
                  {"flip", {3, 4}, Shard(0), turned, {}, 1}});
}

}  // namespace
}  // namespace coshard
