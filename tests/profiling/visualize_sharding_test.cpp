#include <coshard/profiling/visualize_sharding.h>

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <coshard/dtensor/random.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Holders = std::vector<std::vector<int>>;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(VisualizeSharding, TwoShardsCutATensorIntoCells) {
  EXPECT_EQ(visualize_sharding({2, 2}, Layout(Shard(0), Shard(-1)), {8, 6}),
            "[8,6] S(0)S(1) on (2,2)\n"
            "       0:3   3:6\n"
            "0:4      0     1\n"
            "4:8      2     3\n");
}

TEST(VisualizeSharding, ReplicasShareACellAndPartialsAreNoted) {
  const Sharding replicas = sharding_of({2, 2}, Layout(Replicate(), Shard(0)), {4});
  EXPECT_EQ(replicas.grids.at(0).holders, (Holders{{0, 2}, {1, 3}}));
  EXPECT_EQ(replicas.column_dim, -1);
  EXPECT_EQ(replicas.note, "");
  const Sharding terms = sharding_of({2}, Partial(), {4, 4});
  EXPECT_EQ(terms.grids.at(0).holders, (Holders{{0, 1}}));
  EXPECT_NE(terms.note.find("P(sum) along mesh dimension 0"), std::string::npos);
}

TEST(VisualizeSharding, UnevenEmptyAndStridedPartsAreCutWhereTheyEnd) {
  const Sharding uneven = sharding_of({4}, Shard(0), {5, 2});
  EXPECT_EQ(uneven.grids.at(0).holders, (Holders{{0}, {1}, {2}}));  // rank 3 has nothing
  EXPECT_EQ(uneven.grids.at(0).rows.at(2).end, 5);
  const Sharding strided = sharding_of({2}, StridedShard(0, 2), {5});
  EXPECT_EQ(strided.grids.at(0).holders, (Holders{{0}, {1}, {0}, {1}}));
  const Sharding nothing = sharding_of({2}, Shard(0), {0, 3});
  EXPECT_EQ(nothing.grids.at(0).holders, (Holders{{}}));
}

TEST(VisualizeSharding, RowsAndColumnsAreTheDimensionsThatAreCut) {
  const Sharding inner = sharding_of({2, 2}, Layout(Shard(1), Shard(2)), {3, 4, 4});
  EXPECT_EQ(inner.row_dim, 1);
  EXPECT_EQ(inner.column_dim, 2);
  EXPECT_EQ(inner.grids.size(), 1U);
  const Sharding last = sharding_of({2}, Shard(1), {3, 4});
  EXPECT_EQ(last.row_dim, 0);
  EXPECT_EQ(last.grids.at(0).rows.size(), 1U);
  EXPECT_EQ(last.grids.at(0).columns.size(), 2U);
  const Sharding three = sharding_of({2, 2, 2}, Layout(Shard(0), Shard(1), Shard(2)), {4, 4, 4});
  ASSERT_EQ(three.grids.size(), 2U);
  EXPECT_EQ(three.grids[1].title, "dim 2: 2:4");
  EXPECT_EQ(three.grids[1].holders, (Holders{{1}, {3}, {5}, {7}}));
}

TEST(VisualizeSharding, AScalarIsOneCell) {
  const Sharding scalar = sharding_of({2}, Replicate(), {});
  EXPECT_EQ(scalar.row_dim, -1);
  EXPECT_EQ(scalar.grids.at(0).holders, (Holders{{0, 1}}));
}

TEST(VisualizeSharding, OfATensorNamesWorldRanks) {
  testing::on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {2, 0}, {2}, {"tp"});
    const Sharding sharding = sharding_of(zeros(mesh, Shard(0), {4, 2}));
    EXPECT_EQ(sharding.grids.at(0).holders, (Holders{{2}, {0}}));
    EXPECT_EQ(sharding.title, "f32[4,2] S(0) on tp=2");
    EXPECT_THROW(sharding_of(zeros(world.device(), {2})), Error);
    co_return;
  });
}

TEST(VisualizeSharding, RefusesALayoutThatDoesNotFit) {
  EXPECT_THROW(sharding_of({2}, Layout(Shard(0), Shard(0)), {4}), Error);
  EXPECT_THROW(sharding_of({2}, Shard(1), {4}), Error);
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
