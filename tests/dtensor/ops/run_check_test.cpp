#include "dtensor/ops/run_check.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

LocalFacts facts(const Shape& local, DType dtype = DType::F32, std::optional<Shape> shape = {}) {
  return {dtype, local, shape};
}

TEST(Disagreement, EvenAndNamedUnevenPartsAreRight) {
  EXPECT_EQ(disagreement({facts({3, 2}), facts({3, 2})}, {2}, Shard(0)), "");
  EXPECT_EQ(disagreement({facts({3, 2}), facts({3, 2})}, {2}, Replicate()), "");
  EXPECT_EQ(
      disagreement({facts({2, 2}, DType::F32, Shape{3, 2}), facts({1, 2}, DType::F32, Shape{3, 2})},
                   {2}, Shard(-2)),
      "");
}

TEST(Disagreement, NamesTheFirstRankThatDoesNotFit) {
  EXPECT_EQ(disagreement({facts({3}), facts({3}), facts({3}, DType::F64)}, {3}, Replicate()),
            "mesh rank 2 has f64[3], mesh rank 0 has f32[3]");
  EXPECT_EQ(disagreement({facts({3, 2}), facts({3})}, {2}, Replicate()),
            "mesh rank 1 has f32[3], mesh rank 0 has f32[3,2]");
  EXPECT_EQ(
      disagreement({facts({3}), facts({2})}, {2}, Shard(0)),
      "mesh rank 1 has f32[2], but its part of [6] S(0) is [3]; uneven shards need the option "
      "`shape`");
  EXPECT_EQ(disagreement({facts({4}, DType::F32, Shape{7}), facts({4}, DType::F32, Shape{7})}, {2},
                         Shard(0)),
            "mesh rank 1 has f32[4], but its part of [7] S(0) is [3]");
  EXPECT_NE(disagreement({facts({4}, DType::F32, Shape{7}), facts({3})}, {2}, Shard(0)), "");
}

TEST(RunCheck, RefusesOnAllRanksAlike) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DType dtype = world.rank() == 3 ? DType::F32 : DType::F64;
    const Tensor odd_dtype = counting(world, {2, 2}, dtype);
    const Tensor odd_shape = counting(world, {world.rank() == 1 ? 3 : 2, 2});
    FromLocalOptions options;
    options.run_check = true;
    const Layout layout(Shard(0), Replicate());
    EXPECT_THROW(from_local(odd_dtype, mesh, layout, options), Error);
    EXPECT_THROW(from_local(odd_shape, mesh, layout, options), Error);
    options.shape = Shape{5, 2};
    EXPECT_THROW(from_local(counting(world, {2, 2}), mesh, layout, options), Error);
    options.shape = Shape{4, 2};
    CountingObserver seen(world);
    const DTensor x =
        from_local(counting(world, {2, 2}, DType::F64, world.rank() + 1), mesh, layout, options);
    EXPECT_EQ(seen.count(CollectiveKind::AllGather), 2);
    EXPECT_EQ(seen.count(CollectiveKind::Broadcast), 1);
    EXPECT_EQ(x.to_vector(),
              counting(world, {2, 2}, DType::F64, world.rank() / 2 * 2 + 1).to_vector());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
