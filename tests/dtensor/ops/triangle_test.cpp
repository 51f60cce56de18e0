// tril and triu: every rank knows where its part lies.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/view_cases.h"

namespace coshard {
namespace {

using testing::check_views;
using testing::ViewFunction;

TEST(TriangleLayout, EveryRankKnowsWhereItsPartOfTheMatrixLies) {
  for (const std::int64_t d : {-2, 0, 1}) {
    const ViewFunction lower = [d](const Tensor& x) { return tril(x, d); };
    const ViewFunction upper = [d](const Tensor& x) { return triu(x, d); };
    for (const Placement p : {Shard(0), Shard(1), Shard(2), Partial()}) {
      check_views(
          3, {{"tril", {2, 7, 5}, p, lower, Layout(p)}, {"triu", {2, 7, 5}, p, upper, Layout(p)}});
    }
  }
}

}  // namespace
}  // namespace coshard
