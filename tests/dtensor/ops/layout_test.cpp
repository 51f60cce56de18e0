// Which layouts operators give, and that they move nothing where they need not.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

DTensor placed(World& world, const DeviceMesh& mesh, const Shape& shape, Placement placement,
               DType dtype = DType::F64) {
  return distribute_tensor(counting(world, shape, dtype), mesh, placement, std::nullopt);
}

// Runs `body` on two ranks with a mesh, and checks that it issued `collectives` collectives.
template <class Body>
void without_moving(Body body, int collectives = 0) {
  on_ranks(2, [body, collectives](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    body(world, mesh);
    EXPECT_EQ(seen.total(), collectives);
    co_return;
  });
}

TEST(LinearLayout, ColumnAndRowCutsNeedNoCollective) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {3, 5}, Replicate());
    const DTensor up =
        linear(x, placed(world, mesh, {6, 5}, Shard(0)), placed(world, mesh, {6}, Shard(0)));
    EXPECT_EQ(up.layout(), Layout(Shard(1)));
    const DTensor down = linear(up, placed(world, mesh, {4, 6}, Shard(1)));
    EXPECT_EQ(down.layout(), Layout(Partial()));
  });
}

TEST(LinearLayout, AReplicatedBiasIsAddedOnceToARowwiseProduct) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    DTensor bias = placed(world, mesh, {4}, Replicate());
    bias.set_requires_grad(true);
    const DTensor y =
        linear(placed(world, mesh, {3, 6}, Shard(1)), placed(world, mesh, {4, 6}, Shard(1)), bias);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(y.layout(), Layout(Partial()));
    const Tensor whole =
        linear(counting(world, {3, 6}), counting(world, {4, 6}), counting(world, {4}));
    EXPECT_EQ(full_tensor(y.detach()).to_vector(), whole.to_vector());
    seen.reset();
    run_backward(y, placed(world, mesh, {3, 4}, Replicate()));
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(bias.grad().layout(), Layout(Replicate()));
    co_return;
  });
}

TEST(ElementwiseLayout, PartialsStayPartialThroughLinearOperatorsOnly) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor p = placed(world, mesh, {3, 5}, Partial());
    const DTensor r = placed(world, mesh, {3, 5}, Replicate());
    for (const DTensor& y : {p + p, p + r, p * r, div(p, r), p * 2.0, neg(p), view(p, {15}),
                             transpose(p, 0, 1), sum(p)})
      EXPECT_EQ(y.layout(), Layout(Partial())) << y;
  });
  without_moving(
      [](World& world, const DeviceMesh& mesh) {
        const DTensor p = placed(world, mesh, {4, 5}, Partial());
        EXPECT_FALSE(silu(p).layout().has_partial());
        EXPECT_FALSE(add(p, 1.0).layout().has_partial());
      },
      2);
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

TEST(NormLayout, ASequenceCutLeavesTheWeightGradientPartial) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    DTensor weight = placed(world, mesh, {5}, Replicate());
    weight.set_requires_grad(true);
    const DTensor y = rms_norm(placed(world, mesh, {2, 3, 5}, Shard(1)), weight);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    run_backward(y, placed(world, mesh, {2, 3, 5}, Shard(1)));
    EXPECT_EQ(weight.grad().layout(), Layout(Partial()));
  });
}

TEST(AttentionLayout, HeadsAreCutFreelyWhereKeyHeadsDivide) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor q = placed(world, mesh, {1, 4, 3, 2}, Shard(1));
    const DTensor k = placed(world, mesh, {1, 2, 3, 2}, Shard(1));
    EXPECT_EQ(attention(q, k, k).layout(), Layout(Shard(1)));
  });
}

TEST(DropoutLayout, AnyCutDropsWhatOneDeviceDrops) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    manual_seed(11);
    const std::vector<double> whole = dropout(counting(world, {4, 5}), 0.5).to_vector();
    for (const Placement p : {Replicate(), Shard(0), Shard(1)}) {
      manual_seed(11);
      const DTensor y = dropout(placed(world, mesh, {4, 5}, p), 0.5);
      EXPECT_EQ(full_tensor(y).to_vector(), whole);
    }
    co_return;
  });
}

TEST(CrossEntropyLayout, CutRowsGiveAPartialSumAndAMeanOverAllRanks) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const Tensor target =
        Tensor::from_values(world.device(), Shape{3}, DType::I64, std::vector<double>{1, -100, 0});
    const Tensor logits = counting(world, {3, 4}, DType::F64, 0.1);
    DTensor cut = distribute_tensor(logits, mesh, Shard(0), std::nullopt);
    cut.set_requires_grad(true);
    const DTensor cut_target = distribute_tensor(target, mesh, Shard(0), std::nullopt);
    EXPECT_EQ(cross_entropy(cut, cut_target, Reduction::Sum).layout(), Layout(Partial()));
    const DTensor loss = cross_entropy(cut, cut_target);
    EXPECT_NEAR(full_tensor(loss.detach()).item(), cross_entropy(logits, target).item(), 1e-12);
    run_backward(loss);
    EXPECT_EQ(cut.grad().layout(), Layout(Shard(0)));
    co_return;
  });
}

TEST(Operators, RefuseAMixtureOfPlainAndDistributedTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    EXPECT_THROW(placed(world, mesh, {3}, Replicate()) + counting(world, {3}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
