#include <coshard/dtensor/mesh/placement.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/mesh/layout.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(Placement, TextAndBackAreTheSame) {
  for (const char* text : {"R", "S(0)", "S(-1)", "S(12)", "_S(0,3)", "_S(-1,1,64)", "P(sum)",
                           "P(avg)", "P(min)", "P(max)", "P(product)"})
    EXPECT_EQ(str_cat(parse_placement(text)), text);
}

TEST(Placement, TextThatCannotBeReadIsQuotedInTheError) {
  for (const char* text : {"", "S", "S()", "S(x)", "S(1", "T(0)", "P(mean)", "_S(0)", "_S(0,0)",
                           "S(1)2", "S(0,2)", "_S(0,1,0)", "_S(0,1,2,3)", "_S(0,1,)"}) {
    try {
      parse_placement(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find(str_cat("'", text, "'")), std::string::npos);
    }
  }
}

// Dimensions are stored in 16 bits: 65536 must not become 0.
TEST(Placement, DimensionsAndSplitsThatNoTensorHasAreRefused) {
  const auto said = [](auto make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said([] { return Shard(65536); }), "Shard(65536): no tensor has that dimension");
  EXPECT_NE(said([] { return Shard(-65536); }), "");
  EXPECT_NE(said([] { return StridedShard(65537, 2); }), "");
  EXPECT_EQ(said([] { return StridedShard(0, 0); }),
            "StridedShard(0, 0): split must be at least 1");
  EXPECT_NE(said([] { return StridedShard(0, -2); }), "");
  EXPECT_NE(said([] { return parse_placement("S(65536)"); }), "");
  EXPECT_EQ(said([] { return StridedShard(-1, 1); }), "");
  EXPECT_NE(said([] { return StridedShard(0, 1, 0); }), "");
  EXPECT_NE(said([] { return StridedShard(0, 1, std::int64_t{1} << 31); }), "");
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
