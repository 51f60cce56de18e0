// A drawing of a layout as SVG.
#include <coshard/profiling/visualize_sharding.h>

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/ranks.h"

namespace coshard {
namespace {

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(ShardingSvg, DrawsEachCellAndAStripeForEachOfItsRanks) {
  std::ostringstream out;
  write_sharding_svg(out, sharding_of({2, 2}, Layout(Shard(0), Replicate()), {8, 6}));
  const std::string svg = out.str();
  EXPECT_EQ(svg.find("<svg "), 0U);
  EXPECT_EQ(count_of(svg, "class=\"cell\""), 2);
  EXPECT_EQ(count_of(svg, "fill=\"hsl("), 4);
  EXPECT_EQ(count_of(svg, ">0,1</text>"), 1);
  EXPECT_EQ(count_of(svg, ">4:8</text>"), 1);
  EXPECT_EQ(count_of(svg, "</svg>"), 1);
}

}  // namespace
}  // namespace coshard
