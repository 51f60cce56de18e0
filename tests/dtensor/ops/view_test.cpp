// Views, pieces and rearrangements: layouts, collectives, storage, and values against plain
// tensors.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/view_cases.h"

namespace coshard {
namespace {

using testing::check_views;
using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::ViewFunction;
using testing::without_moving;

ViewFunction as_shape(const Shape& shape) {
  return [shape](const Tensor& x) { return view(x, shape); };
}

TEST(ViewLayout, AJoinedRunStaysCutWhereOldAndNewShardsHoldTheSame) {
  check_views(2, {{"rows joined evenly", {4, 6}, Shard(0), as_shape({24}), Layout(Shard(0))},
                  {"rows joined unevenly", {3, 4}, Shard(0), as_shape({12}), {}, 1}});
  check_views(3,
              {{"uneven rows that end alike", {5, 2}, Shard(0), as_shape({10}), Layout(Shard(0))},
               {"and split again", {10}, Shard(0), as_shape({5, 2}), Layout(Shard(0))},
               {"an even cut of neither", {6, 2}, Shard(0), as_shape({4, 3}), {}, 1}});
}

TEST(ViewLayout, ALaterDimensionOfAJoinedRunIsCutIntoStrides) {
  check_views(2, {{"joined", {3, 4}, Shard(1), as_shape({12}), Layout(StridedShard(0, 3))},
                  {"joined in the middle",
                   {2, 3, 4, 5},
                   Shard(2),
                   as_shape({2, 12, 5}),
                   Layout(StridedShard(1, 3))},
                  {"of three", {2, 3, 4}, Shard(2), as_shape({24}), Layout(StridedShard(0, 6))},
                  {"split", {12}, StridedShard(0, 3), as_shape({3, 4}), Layout(Shard(1))},
                  {"unevenly", {2, 3}, Shard(1), as_shape({6}), {}, 1}});
}

TEST(ViewLayout, DimensionsOfOneComeAndGoWithoutAMove) {
  check_views(3, {{"unsqueeze",
                   {4, 2},
                   Shard(0),
                   [](const Tensor& x) { return unsqueeze(x, 0); },
                   Layout(Shard(1))},
                  {"squeeze",
                   {2, 1, 4},
                   Shard(2),
                   [](const Tensor& x) { return squeeze(x); },
                   Layout(Shard(1))},
                  {"squeeze of a cut dimension",
                   {2, 1},
                   Shard(1),
                   [](const Tensor& x) { return squeeze(x, 1); },
                   {},
                   1},
                  {"squeeze of a longer dimension",
                   {2, 3},
                   Shard(1),
                   [](const Tensor& x) { return squeeze(x, 1); },
                   Layout(Shard(1))}});
}

TEST(RepeatLayout, AnInterleavedDimensionStaysCut) {
  const ViewFunction twice = [](const Tensor& x) { return repeat_interleave(x, 2, 0); };
  const ViewFunction tiled = [](const Tensor& x) { return repeat(x, {2, 1, 3}); };
  check_views(2, {{"repeat_interleave", {4, 3}, Shard(0), twice, Layout(Shard(0))},
                  {"repeat_interleave", {4, 3}, Shard(1), twice, Layout(Shard(1))},
                  {"repeat", {4, 3}, Shard(0), tiled, Layout(Shard(1))},
                  {"repeat", {4, 3}, Partial(), tiled, Layout(Partial())}});
}

TEST(Views, ShareTheStorageAndComputeNothing) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {4, 1, 6});
    for (const Tensor& y :
         {slice(x, 2, 1, 6, 2), select(x, 0, 2), squeeze(x), unsqueeze(x, -1),
          unflatten(x, 2, {2, -1}), flatten(x, 1), movedim(x, Shape{0}, Shape{-1}),
          expand(x, {-1, 3, 6}), diagonal(x, 0, 0, 2), unbind(x, 2)[1], chunk(x, 3, 2)[2]})
      EXPECT_EQ(y.storage(), x.storage()) << y;
    EXPECT_EQ(slice(x, 2, 1, 6, 2).shape(), (Shape{4, 1, 3}));
    EXPECT_EQ(movedim(x, {0}, {-1}).shape(), (Shape{1, 6, 4}));
    EXPECT_EQ(diagonal(x, 0, 0, 2).to_vector(), (Values{1, 8, 15, 22}));
    co_return;
  });
}

TEST(View, SharesMemoryWhereStridesAllowItAndCopiesOtherwise) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3, 4});
    const Tensor flat = view(x, {6, -1});
    EXPECT_EQ(flat.shape(), (Shape{6, 4}));
    EXPECT_EQ(flat.storage(), x.storage());
    const Tensor heads = transpose(view(x, {2, 3, 2, 2}), 1, 2);  // [b,h,t,d]
    EXPECT_EQ(view(transpose(heads, 1, 2), {2, 3, 4}).storage(), x.storage());
    const Tensor turned = view(transpose(x, 1, 2), {2, 12});
    EXPECT_NE(turned.storage(), x.storage());
    EXPECT_EQ(slice(turned, 0, 0, 1).to_vector(), (Values{1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}));
    EXPECT_EQ(view(slice(x, 1, 1, 2), {2, 4}).storage(), x.storage());
    EXPECT_THROW(view(x, {5, -1}), Error);
    EXPECT_THROW(view(x, {-1, -1}), Error);
    co_return;
  });
}

TEST(ViewLayout, ShardsMoveWithTheirDimensionAndHeadsSplitEvenly) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {2, 3, 8}, Shard(2));
    const DTensor heads = view(x, {2, 3, 4, 2});
    EXPECT_EQ(heads.layout(), Layout(Shard(2)));
    const DTensor turned = transpose(heads, 1, 2);
    EXPECT_EQ(turned.layout(), Layout(Shard(1)));
    EXPECT_EQ(view(transpose(turned, 1, 2), {2, 3, 8}).layout(), Layout(Shard(2)));
  });
  without_moving(
      [](World& world, const DeviceMesh& mesh) {
        const DTensor x = placed(world, mesh, {6}, Shard(0));
        EXPECT_EQ(view(x, {3, 2}).layout(), Layout(Replicate()));  // 3 heads on 2 ranks
      },
      1);
}

TEST(ViewLayout, AnEmptyTensorOnTheTapeStaysCutWhereNothingIsTakenAway) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    DTensor x = placed(world, mesh, {0, 4}, Shard(0));
    x.set_requires_grad(true);
    const Tensor y = mul(x, x);
    EXPECT_EQ(narrow(y, 0, 0, 0).layout(), Layout(Shard(0)));
    EXPECT_EQ(expand(y, y.shape()).layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard
