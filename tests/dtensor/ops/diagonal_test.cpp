// diagonal: views and layouts.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/view_cases.h"

namespace coshard {
namespace {

using testing::check_views;
using testing::ViewFunction;

TEST(DiagonalLayout, BatchDimensionsStayCut) {
  const ViewFunction f = [](const Tensor& x) { return diagonal(x, 1, 0, 2); };
  check_views(2, {{"diagonal", {4, 3, 5}, Shard(1), f, Layout(Shard(0))},
                  {"diagonal", {4, 3, 5}, Shard(0), f, {}, 1}});
}

}  // namespace
}  // namespace coshard
