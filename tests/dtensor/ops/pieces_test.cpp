// split, chunk and unbind, and the layouts of pieces.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/view_cases.h"

namespace coshard {
namespace {

using testing::check_views;
using testing::counting;
using testing::on_ranks;
using testing::Values;
using testing::ViewFunction;

TEST(PieceLayout, OnlyTheDimensionAtHandMustBeWhole) {
  const ViewFunction step = [](const Tensor& x) { return slice(x, 0, 1, 5, 2); };
  const ViewFunction row = [](const Tensor& x) { return select(x, 0, -1); };
  const ViewFunction all = [](const Tensor& x) { return slice(x, 0, 0, 5); };
  const ViewFunction turn = [](const Tensor& x) { return roll(x, -2, 0); };
  const ViewFunction mirror = [](const Tensor& x) { return flip(x, Shape{0}.span()); };
  const ViewFunction margin = [](const Tensor& x) { return pad(x, Shape{0, 0, 2, -1}.span()); };
  for (const auto& [what, f, cut] :
       std::vector<std::tuple<const char*, ViewFunction, int>>{{"slice", step, 1},
                                                               {"select", row, 0},
                                                               {"roll", turn, 1},
                                                               {"flip", mirror, 1},
                                                               {"pad", margin, 1}}) {
    check_views(2, {{what, {5, 3}, Shard(1), f, Layout(Shard(cut))},
                    {what, {5, 3}, Partial(), f, Layout(Partial())},
                    {what, {5, 3}, Partial(Reduce::Max), f, Layout(Partial(Reduce::Max))}});
  }
  check_views(2, {{"all of a cut dimension", {5, 3}, Shard(0), all, Layout(Shard(0))},
                  {"a slice of a cut dimension", {5, 3}, Shard(0), step, {}, 1},
                  {"several pieces of one",
                   {5, 3},
                   Shard(0),
                   [](const Tensor& x) { return stack(unbind(x, 0), 0); },
                   {},
                   1},
                  {"a turn of one", {5, 3}, Shard(0), turn, {}, 1}});
}

TEST(PieceLayout, AMarginThatIsNotZeroIsAddedOnceToAPartialSum) {
  const ViewFunction f = [](const Tensor& x) { return pad(x, Shape{1, 2}.span(), -1.5); };
  check_views(2, {{"pad", {2, 3}, Partial(), f, {}, 1},
                  {"pad", {2, 3}, Partial(Reduce::Avg), f, Layout(Partial(Reduce::Avg))}});
}

TEST(Pieces, AreThoseOfTorch) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {5});
    const std::vector<std::int64_t> sizes{2, 0, 3};
    EXPECT_EQ(split(x, sizes, 0)[2].to_vector(), (Values{3, 4, 5}));
    EXPECT_EQ(chunk(x, 4, 0).size(), 3u);
    EXPECT_EQ(roll(x, 7, 0).to_vector(), (Values{4, 5, 1, 2, 3}));
    EXPECT_EQ(pad(x, Shape{-1, 2}.span(), 9).to_vector(), (Values{2, 3, 4, 5, 9, 9}));
    EXPECT_EQ(repeat_interleave(counting(world, {2}), 2, 0).to_vector(), (Values{1, 1, 2, 2}));
    EXPECT_EQ(repeat(counting(world, {2}), {2, 2}).shape(), (Shape{2, 4}));
    EXPECT_EQ(slice(x, 0, -2, 99).to_vector(), (Values{4, 5}));
    EXPECT_EQ(cat({counting(world, {1}, DType::I64), counting(world, {1}, DType::F32)}, 0).dtype(),
              DType::F32);
    const std::vector<std::int64_t> wrong{2, 2};
    EXPECT_THROW(split(x, wrong, 0), Error);
    EXPECT_THROW(select(x, 0, 5), Error);
    EXPECT_THROW(narrow(x, 0, 4, 2), Error);
    EXPECT_THROW(slice(x, 0, 0, 5, 0), Error);
    EXPECT_THROW(unflatten(x, 0, {2, 2}), Error);
    EXPECT_THROW(expand(x, {6}), Error);
    EXPECT_THROW(flip(x, (Shape{0, -1}).span()), Error);
    EXPECT_THROW(pad(x, Shape{-3, -3}.span()), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
