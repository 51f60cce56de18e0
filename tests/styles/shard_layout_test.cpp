#include "styles/shard_layout.h"

#include <gtest/gtest.h>

#include "styles/shard_group.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

std::vector<ShardedParameter> of_shapes(std::initializer_list<Shape> shapes) {
  std::vector<ShardedParameter> parameters;
  for (const Shape& shape : shapes) parameters.emplace_back().shape = shape;
  return parameters;
}

// Along `dim`, as torch.chunk does.
void cut(ShardedParameter& p, int dim, int ranks) {
  p.dim = dim;
  p.kept.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    const Chunk part = chunk_of(p.shape[static_cast<std::size_t>(dim)], ranks, rank);
    p.kept.emplace_back();
    if (part.size > 0) p.kept.back().push_back({part.offset, part.offset + part.size});
  }
}

std::shared_ptr<const ShardLayout> layout_of(std::vector<ShardedParameter> parameters, int ranks,
                                             int rank, std::size_t left_out) {
  for (ShardedParameter& p : parameters)
    if (p.kept.empty()) cut(p, 0, ranks);
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
  for (const ShardLayout::Block& block : layout->blocks) {
    EXPECT_EQ(block.offset, sent);
    sent += block.size[0];
    for (std::int64_t i = 0; i < block.size[0]; ++i)
      ++placed[static_cast<std::size_t>(block.begin + i)];
  }
  EXPECT_EQ(sent, layout->total);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t begin = layout->places[i].begin, count = numel(parameters[i].shape);
    EXPECT_EQ(begin % 8, 0) << i;
    for (std::int64_t k = begin; k < begin + count; ++k) --placed[static_cast<std::size_t>(k)];
  }
  EXPECT_EQ(placed, std::vector<int>(placed.size()));
}

// [2,5] along dimension 1 over two ranks, the second of which has positions 1 and 4 alone.
TEST(ShardLayout, MovesWhatRanksKeepOfAnyDimension) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    auto parameters = of_shapes({{2, 5}, {3}});
    parameters[0].dim = 1;
    parameters[0].kept = {{{0, 1}, {2, 4}}, {{1, 2}, {4, 5}}};
    const auto layout = layout_of(parameters, 2, 1, 9);
    EXPECT_EQ(*layout->counts, (std::vector<std::int64_t>{8, 5}));
    std::vector<double> values(static_cast<std::size_t>(layout->size), -1);
    for (std::size_t i = 0; i < 10; ++i) values[i] = static_cast<double>(i);
    const auto second = static_cast<std::size_t>(layout->places[1].begin);
    for (std::size_t i = 0; i < 3; ++i) values[second + i] = 100 + static_cast<double>(i);
    const Tensor buffer =
        Tensor::from_values(world.device(), Shape{layout->size}, DType::F64, values);
    const Tensor data = Tensor::empty(world.device(), Shape{layout->total}, DType::F32);
    pack(buffer, data, *layout);
    EXPECT_EQ(data.to_vector(), (std::vector<double>{0, 2, 3, 5, 7, 8, 100, 101, 1, 4, 6, 9, 102}));
    const Tensor back = Tensor::from_values(world.device(), Shape{layout->size}, DType::F64,
                                            std::vector<double>(values.size(), -1));
    unpack(data, back, *layout);
    EXPECT_EQ(back.to_vector(), values);
    co_return;
  });
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
