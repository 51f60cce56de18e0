#include <coshard/dtensor/placement.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/layout.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(Placement, TextAndBackAreTheSame) {
  for (const char* text : {"R", "S(0)", "S(-1)", "S(12)", "_S(0,3)", "P(sum)", "P(avg)", "P(min)",
                           "P(max)", "P(product)"})
    EXPECT_EQ(cat(parse_placement(text)), text);
}

TEST(Placement, TextThatCannotBeReadIsQuotedInTheError) {
  for (const char* text :
       {"", "S", "S()", "S(x)", "S(1", "T(0)", "P(mean)", "_S(0)", "_S(0,0)", "S(1)2"}) {
    try {
      parse_placement(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find(cat("'", text, "'")), std::string::npos);
    }
  }
}

TEST(Layout, PrintsOnePlacementPerMeshDimension) {
  EXPECT_EQ(to_string(Layout(Shard(0), Replicate(), Partial())), "S(0)RP(sum)");
}

TEST(Layout, NegativeDimsAreNormalisedAgainstTheShape) {
  EXPECT_EQ(normalize(Layout(Shard(-1), Replicate()), {2, 3, 4}, "test"),
            Layout(Shard(2), Replicate()));
  EXPECT_THROW(normalize(Shard(3), {2, 3, 4}, "test"), Error);
  EXPECT_THROW(normalize(Shard(-4), {2, 3, 4}, "test"), Error);
}

}  // namespace
}  // namespace coshard
