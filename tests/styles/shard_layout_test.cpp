#include "styles/shard_layout.h"

#include <gtest/gtest.h>

#include "styles/shard_group.h"

namespace coshard {
namespace {

std::vector<ShardedParameter> of_shapes(std::initializer_list<Shape> shapes) {
  std::vector<ShardedParameter> parameters;
  for (const Shape& shape : shapes) parameters.emplace_back().shape = shape;
  return parameters;
}

std::shared_ptr<const ShardLayout> layout_of(const std::vector<ShardedParameter>& parameters,
                                             int ranks, int rank, std::size_t left_out) {
  return shard_layout(parameters, DType::F64, ranks, rank, [&](const ShardedParameter& p) {
    return &p != parameters.data() + left_out;
  });
}

TEST(ShardLayout, GivesEachRankItsRowsOfEachParameter) {
  const auto parameters = of_shapes({{5, 2}, {2}, {0, 3}, {4, 1}});
  for (int rank = 0; rank < 3; ++rank) {
    const auto layout = layout_of(parameters, 3, rank, 9);
    // torch.chunk: 2, 2, 1 rows of 2 elements; 1, 1, 0; none; 2, 2, 0.
    EXPECT_EQ(*layout->counts, (std::vector<std::int64_t>{7, 7, 2}));
    EXPECT_EQ(layout->total, 16);
    EXPECT_EQ(layout->places[0].shard_begin, 0);
    EXPECT_EQ(layout->places[1].shard_begin, rank < 2 ? 4 : 2);
    EXPECT_EQ(layout->places[3].shard_begin, rank < 2 ? 5 : 2);
  }
}

TEST(ShardLayout, AlignsParametersAndPlacesEveryElementOnce) {
  const auto parameters = of_shapes({{5, 2}, {2}, {7, 3}});
  const auto layout = layout_of(parameters, 2, 0, 9);
  std::vector<int> placed(static_cast<std::size_t>(layout->size));
  std::int64_t sent = 0;
  for (const StridedBlock& block : layout->blocks) {
    EXPECT_EQ(block.offset, sent);
    sent += block.size[0];
    for (std::int64_t i = 0; i < block.size[0]; ++i)
      ++placed[static_cast<std::size_t>(block.begin[0] + i)];
  }
  EXPECT_EQ(sent, layout->total);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t begin = layout->places[i].begin, count = numel(parameters[i].shape);
    EXPECT_EQ(begin % 8, 0) << i;
    for (std::int64_t k = begin; k < begin + count; ++k) --placed[static_cast<std::size_t>(k)];
  }
  EXPECT_EQ(placed, std::vector<int>(placed.size()));
}

TEST(ShardLayout, LeavesOutWhatIsNotIncluded) {
  const auto parameters = of_shapes({{5, 2}, {2}, {4, 1}});
  const auto layout = layout_of(parameters, 2, 1, 0);
  EXPECT_EQ(layout->places[0].begin, -1);
  EXPECT_EQ(layout->places[1].begin, 0);
  EXPECT_EQ(layout->total, 6);
  EXPECT_EQ(*layout->counts, (std::vector<std::int64_t>{3, 3}));
  const auto one = of_shapes({Shape{3}});
  const auto nothing = layout_of(one, 2, 1, 0);
  EXPECT_EQ(nothing->size, 0);
  EXPECT_EQ(nothing->total, 0);
}

}  // namespace
}  // namespace coshard
