#include <coshard/dtensor/tape/overlap.h>

#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

TEST(Overlap, NamesTheChoicesOfAnUnknownOverlap) {
  EXPECT_EQ(parse_overlap("always"), Overlap::Always);
  EXPECT_EQ(testing::refusal([] { parse_overlap("on"); }),
            "overlap: expected off, auto or always, got 'on'");
}

}  // namespace
}  // namespace coshard
