// Products: values, layouts, and what they refuse.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::values;
using testing::without_collectives;

TEST(Matmul, TakesVectorsAndStretchesLeadingDimensions) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor v = counting(world, {3});
    const Tensor m = counting(world, {2, 3});
    EXPECT_EQ(matmul(m, v).to_vector(), (Values{14, 32}));
    EXPECT_EQ(matmul(v, transpose(m, 0, 1)).to_vector(), (Values{14, 32}));
    EXPECT_EQ(dot(v, v).shape(), Shape{});
    EXPECT_EQ(dot(v, v).item(), 14);
    EXPECT_EQ(outer(v, counting(world, {2})).to_vector(), (Values{1, 2, 2, 4, 3, 6}));
    const Tensor batch = counting(world, {2, 1, 1, 3});
    EXPECT_EQ(matmul(batch, counting(world, {4, 3, 2})).shape(), (Shape{2, 4, 1, 2}));
    EXPECT_EQ(matmul(v, counting(world, {2, 3, 1})).to_vector(), (Values{14, 32}));
    EXPECT_EQ(matmul(m, counting(world, {2, 3, 1})).to_vector(), (Values{14, 32, 32, 77}));
    EXPECT_THROW(matmul(counting(world, {2, 2, 3}), counting(world, {3, 3, 2})), Error);
    EXPECT_THROW(mv(v, v), Error);
    co_return;
  });
}

TEST(Matmul, MultipliesIntegers) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = counting(world, {2, 2}, DType::I64);
    EXPECT_EQ(matmul(a, a).dtype(), DType::I64);
    EXPECT_EQ(matmul(a, a).to_vector(), (Values{7, 10, 15, 22}));
    co_return;
  });
}

TEST(Matmul, OfPartialsAlongDifferentMeshDimensionsMovesNothing) {
  without_collectives({2, 2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor a = placed(world, mesh, {3, 5}, Layout(Partial(), Replicate()));
    const DTensor b = placed(world, mesh, {5, 2}, Layout(Replicate(), Partial()));
    EXPECT_EQ(matmul(a, b).layout(), Layout(Partial(), Partial()));
  });
}

TEST(Matmul, OfTwoPartialsReducesOne) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor a = placed(world, mesh, {3, 5}, Layout(Partial()));
    const DTensor b = placed(world, mesh, {5, 2}, Layout(Partial()));
    CountingObserver seen(world);
    const DTensor y = matmul(a, b);
    EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 1);
    EXPECT_EQ(seen.total(), 1);
    EXPECT_EQ(y.layout(), Layout(Partial()));
    const Tensor whole = matmul(counting(world, {3, 5}), counting(world, {5, 2}));
    EXPECT_EQ(full_tensor(y).to_vector(), whole.to_vector());
    co_return;
  });
}

TEST(Matmul, KeepsACutLeadingDimensionBesideAStretchedOne) {
  without_collectives({2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor a = placed(world, mesh, {3, 1, 2, 5}, Shard(0));
    const DTensor b = placed(world, mesh, {4, 5, 2}, Replicate());
    EXPECT_EQ(matmul(a, b).layout(), Layout(Shard(0)));
  });
}

TEST(Matmul, MultipliesMatricesBatchesAndTransposedViews) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = counting(world, {2, 3});
    const Tensor b = counting(world, {3, 2});
    EXPECT_EQ(matmul(a, b).to_vector(), (Values{22, 28, 49, 64}));
    EXPECT_EQ(matmul(a, transpose(a, 0, 1)).to_vector(), (Values{14, 32, 32, 77}));
    const Tensor batch = counting(world, {2, 1, 2});
    EXPECT_EQ(matmul(batch, counting(world, {2, 2, 1})).to_vector(), (Values{5, 25}));
    EXPECT_EQ(matmul(batch, counting(world, {2, 1})).shape(), (Shape{2, 1, 1}));
    co_return;
  });
}

TEST(Matmul, RefusesInnerDimensionsThatDifferAndNamesThem) {
  on_ranks(1, [](World& world) -> Task<void> {
    try {
      matmul(counting(world, {2, 3}), counting(world, {4, 2}));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("[2,3] @ [4,2]"), std::string::npos) << error.what();
    }
    co_return;
  });
}

TEST(Matmul, TheGradientOfATransposedWeightLiesInTheWeightsOrderOfMemory) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor weight = counting(world, {4, 3});
    weight.set_requires_grad(true);
    const Tensor x = counting(world, {2, 3});
    run_backward(sum(matmul(x, transpose(weight, 0, 1))));
    EXPECT_TRUE(weight.grad().is_contiguous());
    EXPECT_EQ(weight.grad().to_vector(), (Values{5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, 9}));
    co_return;
  });
}

TEST(MatmulInto, OverwritesOrAddsRows) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor into = zeros(world.device(), {3, 2}, DType::F64);
    const Tensor rows = slice(into, 0, 1, 3);
    const Tensor one = values(world, {1, 2}, {1, 1});
    matmul_into(rows, counting(world, {2, 1}), one);
    matmul_into(rows, counting(world, {2, 1}), one, true);
    EXPECT_EQ(into.to_vector(), (Values{0, 0, 2, 2, 4, 4}));
    EXPECT_THROW(matmul_into(rows, counting(world, {3, 1}), one), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
