// A drawing of a layout as SVG.
#include <coshard/profiling/visualize_sharding.h>

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "tests/support/ranks.h"

namespace coshard {
namespace {

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::string svg_of(const std::vector<int>& mesh, const Layout& layout, const Shape& shape) {
  std::ostringstream out;
  write_sharding_svg(out, sharding_of(mesh, layout, shape));
  return out.str();
}

TEST(ShardingSvg, DrawsEachCellInFrontOfItsReplicas) {
  const std::string svg = svg_of({2, 2}, Layout(Shard(0), Replicate()), {8, 6});
  EXPECT_EQ(svg.find("<svg "), 0U);
  EXPECT_EQ(count_of(svg, "class=\"cell\""), 2);
  EXPECT_EQ(count_of(svg, "class=\"sheet\""), 2);
  EXPECT_EQ(count_of(svg, ">ranks 0,1</text>"), 1);
  EXPECT_EQ(count_of(svg, ">2 replicas</text>"), 2);
  EXPECT_EQ(count_of(svg, ">4:8</text>"), 1);
  EXPECT_EQ(count_of(svg, "dasharray"), 0);
  EXPECT_EQ(count_of(svg, "</svg>"), 1);
}

TEST(ShardingSvg, ReplicasHaveOneColorAndOneSizeAndShardsDoNot) {
  const auto colors = [](const std::string& svg) {
    std::set<std::string> found;
    for (std::size_t at = svg.find("hsl("); at != std::string::npos; at = svg.find("hsl(", at + 1))
      found.insert(svg.substr(at, svg.find(')', at) - at));
    return found.size();
  };
  EXPECT_EQ(colors(svg_of({4}, Replicate(), {8, 6})), 1U);
  EXPECT_EQ(colors(svg_of({4}, Shard(0), {8, 6})), 4U);
  EXPECT_EQ(count_of(svg_of({4}, Shard(0), {8, 6}), "class=\"sheet\""), 0);
  EXPECT_EQ(count_of(svg_of({64}, Replicate(), {8, 6}), "class=\"sheet\""), 3);
  EXPECT_EQ(count_of(svg_of({64}, Replicate(), {8, 6}), ">ranks 0-63</text>"), 1);
}

TEST(ShardingSvg, TermsAreDashedAndCounted) {
  const std::string svg = svg_of({2, 2}, Layout(Partial(), Replicate()), {8, 6});
  EXPECT_EQ(count_of(svg, "dasharray"), 4);
  EXPECT_EQ(count_of(svg, ">2 terms, 2 replicas of each</text>"), 1);
}

TEST(ShardingSvg, LabelsAtTheLeftHaveRoom) {
  const std::string svg = svg_of({4}, Shard(0), {123'456'789'012, 2});
  const std::string label = ">92592591759:123456789012</text>";
  const std::size_t end = svg.find(label);
  ASSERT_NE(end, std::string::npos) << svg;
  const std::size_t x = svg.rfind("x=\"", end);  // where it ends: it is anchored there
  EXPECT_GT(std::stod(svg.substr(x + 3)), 6.7 * static_cast<double>(label.size() - 8));
}

}  // namespace
}  // namespace coshard
