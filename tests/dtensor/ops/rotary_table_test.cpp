#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/rotary_table.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(RotaryTable, EqualOnesAreOne) {
  const RotaryTable a({1, 0.5F}, 1.5), b({1, 0.5F}, 1.5);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.key(), b.key());
  EXPECT_NE(a, RotaryTable({1, 0.5F}));
  EXPECT_NE(a, RotaryTable({1, 0.25F}, 1.5));
  EXPECT_EQ(a.frequencies()[1], 0.5F);
  EXPECT_EQ(a.scaling(), 1.5);
}

TEST(RotaryTable, RefusesWhatIsNotFinite) {
  EXPECT_THROW(RotaryTable({}), Error);
  EXPECT_THROW(RotaryTable({1, INFINITY}), Error);
  EXPECT_THROW(RotaryTable({1}, NAN), Error);
}

}  // namespace
}  // namespace coshard
