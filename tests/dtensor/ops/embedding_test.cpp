// embedding: rows, the padding row, and cuts of the table.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Embedding, GivesThePaddingRowNoGradientAndRefusesIdsOutsideTheTable) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor weight = counting(world, {3, 2});
    weight.set_requires_grad(true);
    const Tensor ids = values(world, {3}, {1, 2, 2}, DType::I64);
    const Tensor out = embedding(ids, weight, 1);
    EXPECT_EQ(out.to_vector(), (Values{3, 4, 5, 6, 5, 6}));
    run_backward(sum(out));
    EXPECT_EQ(weight.grad().to_vector(), (Values{0, 0, 0, 0, 2, 2}));
    const Tensor high = values(world, {1}, {3}, DType::I64);
    EXPECT_THROW(embedding(high, weight).to_vector(), Error);
    co_return;
  });
}

TEST(Embedding, CountsThePaddingRowFromTheEnd) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor weight = ones({3, 2}, DType::F64, true);
    const Tensor ids = Tensor::from_values(world.device(), {3}, DType::I64, {0, 2, 2});
    co_await embedding(ids, weight, -1).sum().backward();
    EXPECT_EQ(weight.grad().to_vector(), (Values{1, 1, 0, 0, 0, 0}));
    const Tensor first = ones({3, 2}, DType::F64, true);
    co_await embedding(ids, first, -3).sum().backward();
    EXPECT_EQ(first.grad().to_vector(), (Values{0, 0, 0, 0, 2, 2}));
    EXPECT_THROW(embedding(ids, weight, 7), Error);
    EXPECT_THROW(embedding(ids, weight, 3), Error);
    EXPECT_THROW(embedding(ids, weight, -4), Error);
    const Tensor other = ones({3, 2}, DType::F64, true);
    co_await embedding(ids, other).sum().backward();
    EXPECT_EQ(other.grad().to_vector(), (Values{1, 1, 0, 0, 2, 2}));
  });
}

TEST(EmbeddingLayout, MovesNothingForwardNorBackwardAndTheGradientIsCutLikeTheTable) {
  for (const Placement p : {Shard(0), Shard(1)}) {
    without_moving([p](World& world, const DeviceMesh& mesh) {
      DTensor weight = placed(world, mesh, {9, 5}, p);
      weight.set_requires_grad(true);
      const DTensor out = embedding(placed(world, mesh, {2, 3}, Replicate(), DType::I64), weight);
      EXPECT_EQ(out.layout(), p == Shard(0) ? Layout(Partial()) : Layout(Shard(2)));
      run_backward(out, placed(world, mesh, {2, 3, 5}, p == Shard(0) ? Replicate() : Shard(2)));
      EXPECT_EQ(weight.grad().layout(), Layout(p));
    });
  }
}

}  // namespace
}  // namespace coshard
