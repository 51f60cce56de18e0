#include <coshard/dtensor/tensor/dims.h>

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(Dims, AreBitsOfAllOneOrSeveral) {
  EXPECT_EQ(Dims().mask(3, "sum"), 0b111);
  EXPECT_EQ(Dims(-1).mask(3, "sum"), 0b100);
  EXPECT_EQ(Dims(0, -1).mask(3, "sum"), 0b101);
  EXPECT_EQ(Dims(-1).mask(0, "sum"), 0);
}

TEST(Dims, RefusesOneThatIsThereTwiceOrNot) {
  EXPECT_THROW((void)Dims(0, -3).mask(3, "sum"), Error);
  EXPECT_THROW((void)Dims(3).mask(3, "sum"), Error);
}

}  // namespace
}  // namespace coshard
