// Views, pieces and rearrangements: layouts, collectives, storage, and values against plain
// tensors.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;
using ViewFunction = std::function<Tensor(const Tensor&)>;

// `shape` in layout `from` through f gives layout `to`, the plain tensor's values, and issues
// `collectives`.
struct ViewExpectation {
  const char* what;
  Shape shape;
  Layout from;
  ViewFunction f;
  std::optional<Layout> to;
  int collectives = 0;
};

void check_view(World& world, const DeviceMesh& mesh, const ViewExpectation& e) {
  const Tensor plain = counting(world, e.shape);
  const DTensor x = distribute_tensor(plain, mesh, e.from, std::nullopt);
  CountingObserver seen(world);
  const DTensor y = e.f(x);
  EXPECT_EQ(seen.total(), e.collectives) << e.what << " of " << x;
  if (e.to) {
    EXPECT_EQ(y.layout(), *e.to) << e.what << " of " << x;
  }
  EXPECT_EQ(full_tensor(y).to_vector(), e.f(plain).to_vector()) << e.what << " of " << x;
}

void check_views(int ranks, const std::vector<ViewExpectation>& all) {
  struct Body {
    static Task<void> run(World& world, const std::vector<ViewExpectation>& all) {
      const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
      for (const ViewExpectation& e : all) check_view(world, mesh, e);
      co_return;
    }
  };
  on_ranks(ranks, [&all](World& world) { return Body::run(world, all); });
}

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

TEST(TriangleLayout, EveryRankKnowsWhereItsPartOfTheMatrixLies) {
  for (const std::int64_t d : {-2, 0, 1}) {
    const ViewFunction lower = [d](const Tensor& x) { return tril(x, d); };
    const ViewFunction upper = [d](const Tensor& x) { return triu(x, d); };
    for (const Placement p : {Shard(0), Shard(1), Shard(2), Partial()}) {
      check_views(
          3, {{"tril", {2, 7, 5}, p, lower, Layout(p)}, {"triu", {2, 7, 5}, p, upper, Layout(p)}});
    }
  }
}

TEST(RepeatLayout, AnInterleavedDimensionStaysCut) {
  const ViewFunction twice = [](const Tensor& x) { return repeat_interleave(x, 2, 0); };
  const ViewFunction tiled = [](const Tensor& x) { return repeat(x, {2, 1, 3}); };
  check_views(2, {{"repeat_interleave", {4, 3}, Shard(0), twice, Layout(Shard(0))},
                  {"repeat_interleave", {4, 3}, Shard(1), twice, Layout(Shard(1))},
                  {"repeat", {4, 3}, Shard(0), tiled, Layout(Shard(1))},
                  {"repeat", {4, 3}, Partial(), tiled, Layout(Partial())}});
}

TEST(DiagonalLayout, BatchDimensionsStayCut) {
  const ViewFunction f = [](const Tensor& x) { return diagonal(x, 1, 0, 2); };
  check_views(2, {{"diagonal", {4, 3, 5}, Shard(1), f, Layout(Shard(0))},
                  {"diagonal", {4, 3, 5}, Shard(0), f, {}, 1}});
}

TEST(CatLayout, APartialWithAReplicaIsPartialAndAStackGainsADimension) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = counting(world, {3, 2});
    const DTensor p = distribute_tensor(plain, mesh, Partial(), std::nullopt);
    const DTensor r = distribute_tensor(plain, mesh, Replicate(), std::nullopt);
    const DTensor s = distribute_tensor(plain, mesh, Shard(1), std::nullopt);
    CountingObserver seen(world);
    const DTensor joined = cat(std::vector<Tensor>{p, r}, 0);
    const DTensor stacked = stack(std::vector<Tensor>{s, s, r}, 1);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(joined.layout(), Layout(Partial()));
    EXPECT_EQ(stacked.layout(), Layout(Shard(2)));
    EXPECT_EQ(full_tensor(joined).to_vector(),
              cat(std::vector<Tensor>{plain, plain}, 0).to_vector());
    EXPECT_EQ(full_tensor(stacked).to_vector(),
              stack(std::vector<Tensor>{plain, plain, plain}, 1).to_vector());
    co_return;
  });
}

TEST(GatherLayout, EqualCutsStayAndAGradientAlongACutIndexIsAPartialSum) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor index = Tensor::from_values(world.device(), Shape{3, 3}, DType::I64,
                                             Values{2, 0, 1, 1, 1, 0, 2, 2, 2});
    const DTensor x = distribute_tensor(counting(world, {3, 4}), mesh, Shard(0), std::nullopt);
    const DTensor rows = distribute_tensor(index, mesh, Shard(0), std::nullopt);
    DTensor whole = distribute_tensor(counting(world, {3, 4}), mesh, Replicate(), std::nullopt);
    whole.set_requires_grad(true);
    const DTensor columns = distribute_tensor(index, mesh, Shard(1), std::nullopt);
    CountingObserver seen(world);
    EXPECT_EQ(gather(x, 1, rows).layout(), Layout(Shard(0)));
    const DTensor y = gather(whole, 1, columns);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    EXPECT_EQ(scatter_add_zeros({3, 4}, 1, columns, y.detach()).layout(), Layout(Partial()));
    EXPECT_EQ(index_select(x, 1,
                           distribute_tensor(counting(world, {2}, DType::I64), mesh, Replicate(),
                                             std::nullopt))
                  .layout(),
              Layout(Shard(0)));
    EXPECT_EQ(seen.total(), 0);
    run_backward(sum(y));
    EXPECT_EQ(full_tensor(whole.grad()).to_vector(), (Values{1, 1, 1, 0, 1, 2, 0, 0, 0, 0, 3, 0}));
    co_return;
  });
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
