// Layouts as values: text, negative dimensions, what a gradient of a Partial is.
#include <gtest/gtest.h>

#include <coshard/dtensor/mesh/layout.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(LayoutValue, PrintsAndComparesPlacementByPlacement) {
  const Layout layout(Shard(0), Replicate(), Partial(Reduce::Max), StridedShard(1, 2));
  EXPECT_EQ(to_string(Layout(Shard(0), Replicate())), "S(0)R");
  EXPECT_EQ(to_string(Layout(Partial())), "P(sum)");
  EXPECT_EQ(layout.ndim(), 4);
  EXPECT_TRUE(layout.has_partial());
  EXPECT_FALSE(layout.is_replicate());
  EXPECT_TRUE(Layout::filled(3, Replicate()).is_replicate());
  EXPECT_FALSE(Layout(Shard(0)) == Layout(StridedShard(0, 2)));
}

TEST(LayoutValue, CountsNegativeDimensionsFromTheEndAndRefusesOthers) {
  EXPECT_EQ(normalize(Layout(Shard(-1), StridedShard(-2, 3)), {4, 6}, "x"),
            Layout(Shard(1), StridedShard(0, 3)));
  EXPECT_EQ(normalize(Layout(Partial(), Replicate()), {}, "x"), Layout(Partial(), Replicate()));
  for (const int dim : {2, -3}) {
    try {
      normalize(Layout(Shard(dim)), {4, 6}, "distribute");
      ADD_FAILURE() << dim;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_EQ(std::string(error.what()).find("distribute"), 0U);
    }
  }
}

TEST(LayoutValue, RefusesAnIndexThatIsOutOfRange) {
  Layout layout(Shard(0), Replicate());
  const Layout& same = layout;
  EXPECT_EQ(same[1], Replicate());
  for (const int i : {-1, 2, 3, 100}) {
    EXPECT_THROW(layout[i], Error);
    try {
      same[i];
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), str_cat("layout: dimension ", i,
                                      " is out of range for S(0)R, which has 2; count from 0"));
    }
  }
}

TEST(LayoutValue, AGradientOfAPartialIsAReplica) {
  EXPECT_EQ(partial_as_replicate(Layout(Shard(0), Partial(), Partial(Reduce::Avg))),
            Layout(Shard(0), Replicate(), Replicate()));
}

}  // namespace
}  // namespace coshard
