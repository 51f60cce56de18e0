// Which layouts operators choose where they have to move something: nobody idles, and what is moved
// is the least, the reduction that a Partial leaves for later included.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/choices/moved_bytes.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::MovedBytes;
using testing::on_ranks;

// Values that differ everywhere and stay small: no two are equal for the sizes used here.
Tensor wavy(World& world, const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(7 * i));
  return Tensor::from_values(world.device(), shape, dtype, values);
}

DTensor placed(const DeviceMesh& mesh, const Shape& shape, const Layout& layout,
               DType dtype = DType::F32) {
  return distribute_tensor(wavy(mesh.world(), shape, dtype), mesh, layout, std::nullopt);
}

// Runs `body` on four ranks in a line.
template <class Body>
void on_four(Body body) {
  on_ranks(4, [body](World& world) -> Task<void> {
    body(init_device_mesh(world, {4}, {"tp"}));
    co_return;
  });
}

TEST(Choices, NoRankIdlesWhereAnotherCutKeepsAllBusy) {
  on_four([](const DeviceMesh& mesh) {
    const DTensor last = placed(mesh, {1, 64, 128}, Shard(2));
    const DTensor partial = placed(mesh, {1, 64, 128}, Partial());
    const DTensor two = placed(mesh, {2, 64, 128}, Partial());
    const DTensor heads = placed(mesh, {1, 8, 16, 4}, Shard(3));
    const DTensor weight = placed(mesh, {128}, Replicate());
    EXPECT_GT(softmax(last, 2).local_numel(), 0);
    EXPECT_GT(log_softmax(last, 2).local_numel(), 0);
    EXPECT_GT(gelu(partial).local_numel(), 0);
    EXPECT_GT(cumsum(last, 2).local_numel(), 0);
    EXPECT_GT(topk(last, 3, 2).values.local_numel(), 0);
    EXPECT_GT(slice(last, 2, 1, 100).local_numel(), 0);
    EXPECT_GT(layer_norm(last, weight).local_numel(), 0);
    EXPECT_GT(attention(heads, heads, heads).local_numel(), 0);
    EXPECT_GT(rms_norm(two, weight).local_numel(), 0);
    EXPECT_EQ(rms_norm(two, weight).layout(), Layout(Shard(1)));
    EXPECT_EQ(softmax(placed(mesh, {1, 128}, Shard(1)), 1).layout(), Layout(Replicate()));
  });
}

TEST(Choices, RanksThatAreEmptyAlreadyStaySo) {
  on_four([](const DeviceMesh& mesh) {
    MovedBytes moved(mesh);
    EXPECT_EQ(gelu(placed(mesh, {1, 64, 128}, Shard(0))).layout(), Layout(Shard(0)));
    EXPECT_EQ(softmax(placed(mesh, {2, 64, 128}, Shard(0)), 2).layout(), Layout(Shard(0)));
    EXPECT_EQ(moved.collectives(), 0);
  });
}

TEST(Choices, OneRankChangesNoLayout) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    EXPECT_EQ(gelu(placed(mesh, {4, 8}, Shard(1))).layout(), Layout(Shard(1)));
    EXPECT_EQ(linear(placed(mesh, {4, 8}, Shard(1)), placed(mesh, {6, 8}, Shard(1))).layout(),
              Layout(Partial()));
    co_return;
  });
}

TEST(Choices, AWeightIsNotMovedForAPartialThatCostsMoreLater) {
  on_four([](const DeviceMesh& mesh) {
    const DTensor z = placed(mesh, {8, 64, 256}, Shard(0));
    const DTensor w = placed(mesh, {1024, 256}, Shard(0));
    MovedBytes moved(mesh);
    const DTensor y = gelu(linear(z, w));
    EXPECT_EQ(moved.text(), "all_gather 1");
    EXPECT_EQ(moved.bytes(), 8 * 64 * 256 * 4 * 3 / 4);
    EXPECT_FALSE(y.layout().has_partial());
  });
}

TEST(Choices, ASmallWeightIsGatheredRatherThanRowsScattered) {
  on_four([](const DeviceMesh& mesh) {
    const DTensor x = placed(mesh, {512, 256}, Shard(0));
    const DTensor w = placed(mesh, {256, 256}, Shard(1));
    MovedBytes moved(mesh);
    const DTensor y = gelu(linear(x, w));
    EXPECT_EQ(moved.text(), "all_gather 1");
    EXPECT_EQ(moved.bytes(), 256 * 256 * 4 * 3 / 4);
    EXPECT_EQ(y.layout(), Layout(Shard(0)));
  });
}

// The batch is cut eight ways already, so the activations that a rank has are smaller than the
// weight: it is they that are gathered over tp, though the logical tensor is larger.
TEST(Choices, WhatOtherMeshDimensionsCutCountsAsTheRankHoldsIt) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DTensor x = placed(mesh, {64, 192}, Layout(Shard(0), Shard(0)));
    const DTensor w = placed(mesh, {48, 192}, Layout(Replicate(), Shard(0)));
    MovedBytes moved(mesh);
    const DTensor y = linear(x, w);
    EXPECT_EQ(moved.text(), "all_gather 1");
    EXPECT_EQ(moved.bytes(), 32 * 192 * 4 / 2);
    EXPECT_EQ(y.layout(), Layout(Shard(0), Shard(1)));
    co_return;
  });
}

// --- gather and extremes along a sharded dimension ---

TEST(Choices, GatherAlongACutDimensionMovesTheResultForwardAndNothingBackward) {
  on_four([](const DeviceMesh& mesh) {
    World& world = mesh.world();
    const Shape shape{512, 3200};
    std::vector<double> picks(512);
    for (std::size_t i = 0; i < picks.size(); ++i) picks[i] = static_cast<double>(i * 37 % 3200);
    const Tensor index = Tensor::from_values(world.device(), {512, 1}, DType::I64, picks);
    DTensor logits = placed(mesh, shape, Shard(1));
    logits.set_requires_grad(true);
    MovedBytes moved(mesh);
    const DTensor picked =
        gather(logits, 1, distribute_tensor(index, mesh, Replicate(), std::nullopt));
    const DTensor whole = full_tensor(picked.detach());
    EXPECT_LE(moved.collectives(), 1);
    EXPECT_LE(moved.bytes(), 2 * 512 * 4);
    EXPECT_EQ(whole.to_vector(), gather(wavy(world, shape, DType::F32), 1, index).to_vector());
    moved.reset();
    run_backward(picked, placed(mesh, {512, 1}, Replicate()));
    EXPECT_EQ(moved.collectives(), 0);
    EXPECT_EQ(logits.grad().layout(), Layout(Shard(1)));
    Tensor plain = wavy(world, shape, DType::F32);
    plain.set_requires_grad(true);
    run_backward(gather(plain, 1, index), wavy(world, {512, 1}, DType::F32));
    EXPECT_EQ(full_tensor(logits.grad()).to_vector(), plain.grad().to_vector());
  });
}

TEST(Choices, ExtremesAlongACutDimensionMoveAPairPerRank) {
  on_four([](const DeviceMesh& mesh) {
    World& world = mesh.world();
    for (const Shape& shape : {Shape{512, 3200}, Shape{64, 5}, Shape{64, 2}}) {
      const DTensor x = placed(mesh, shape, Shard(1));
      const Tensor whole = wavy(world, shape, DType::F32);
      MovedBytes moved(mesh);
      const DTensor index = argmax(x, 1);
      EXPECT_LE(moved.collectives(), 1) << shape;
      EXPECT_LE(moved.bytes(), 3 * shape[0] * 16) << shape;
      EXPECT_EQ(full_tensor(index).to_vector(), argmax(whole, 1).to_vector()) << shape;
      EXPECT_EQ(full_tensor(argmin(x, -1, true)).to_vector(), argmin(whole, 1).to_vector());
    }
  });
}

TEST(Choices, TheGradientOfAMaximumAlongACutDimensionStaysWhereTheInputIs) {
  on_four([](const DeviceMesh& mesh) {
    const Shape shape{64, 320};
    DTensor x = placed(mesh, shape, Shard(1));
    x.set_requires_grad(true);
    MovedBytes moved(mesh);
    const ValuesAndIndices found = max(x, 1);
    run_backward(found.values, placed(mesh, {64}, Replicate()));
    EXPECT_LE(moved.bytes(), 8 * 64 * 16);
    EXPECT_EQ(x.grad().layout(), Layout(Shard(1)));
    Tensor plain = wavy(mesh.world(), shape, DType::F32);
    plain.set_requires_grad(true);
    const ValuesAndIndices right = max(plain, 1);
    run_backward(right.values, wavy(mesh.world(), {64}, DType::F32));
    EXPECT_EQ(full_tensor(found.values.detach()).to_vector(), right.values.to_vector());
    EXPECT_EQ(full_tensor(found.indices).to_vector(), right.indices.to_vector());
    EXPECT_EQ(full_tensor(x.grad()).to_vector(), plain.grad().to_vector());
  });
}

TEST(Choices, TheFirstOfEqualsAndNaNWinAcrossRanks) {
  on_four([](const DeviceMesh& mesh) {
    World& world = mesh.world();
    const double nan = std::nan("");

    const std::vector<double> rows[] = {
        {0, 3, 1, 3, 3, 2, 3, 1}, {0, 9, 1, 3, nan, 2, nan, 5}, std::vector<double>(8, -INFINITY)};
    for (const auto& row : rows) {
      const Tensor whole = Tensor::from_values(world.device(), {8}, DType::F64, row);
      const DTensor x = distribute_tensor(whole, mesh, Shard(0), std::nullopt);
      EXPECT_EQ(full_tensor(argmax(x, 0)).to_vector(), argmax(whole, 0).to_vector());
      EXPECT_EQ(full_tensor(argmin(x, 0)).to_vector(), argmin(whole, 0).to_vector());
    }
  });
}

// --- a tensor without dimensions takes dimension 0 ---

TEST(Choices, SoftmaxAndSortTakeDimensionZeroOfANumber) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = Tensor::from_values(world.device(), Shape{}, DType::F64, std::vector<double>{3});
    x.set_requires_grad(true);
    for (const int dim : {0, -1}) {
      EXPECT_EQ(softmax(x, dim).item(), 1);
      EXPECT_EQ(log_softmax(x, dim).item(), 0);
      EXPECT_EQ(sort(x, dim).values.item(), 3);
      EXPECT_EQ(sort(x, dim).indices.item(), 0);
      EXPECT_EQ(argsort(x, dim).item(), 0);
      EXPECT_EQ(topk(x, 1, dim).values.item(), 3);
      EXPECT_EQ(kthvalue(x, 1, dim).values.item(), 3);
    }
    EXPECT_THROW(softmax(x, 1), Error);
    EXPECT_THROW(sort(x, 1), Error);
    run_backward(add(softmax(x, 0), sort(x, 0).values));
    EXPECT_EQ(x.grad().item(), 1);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
