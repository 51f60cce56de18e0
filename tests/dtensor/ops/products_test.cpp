#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;

DTensor product_input(World& world, const DeviceMesh& mesh, const Shape& shape, Layout layout) {
  return distribute_tensor(counting(world, shape), mesh, layout, std::nullopt);
}

// Runs `body` on `mesh_shape` and checks that it issued nothing.
template <class Body>
void without_collectives(const std::vector<int>& mesh_shape, Body body) {
  int ranks = 1;
  for (int n : mesh_shape) ranks *= n;
  on_ranks(ranks, [body, mesh_shape](World& world) -> Task<void> {
    const std::vector<std::string> names{"dp", "tp"};
    const DeviceMesh mesh =
        init_device_mesh(world, mesh_shape, {names.end() - mesh_shape.size(), names.end()});
    CountingObserver seen(world);
    body(world, mesh);
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

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
    const DTensor a = product_input(world, mesh, {3, 5}, Layout(Partial(), Replicate()));
    const DTensor b = product_input(world, mesh, {5, 2}, Layout(Replicate(), Partial()));
    EXPECT_EQ(matmul(a, b).layout(), Layout(Partial(), Partial()));
  });
}

TEST(Matmul, OfTwoPartialsReducesOne) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor a = product_input(world, mesh, {3, 5}, Layout(Partial()));
    const DTensor b = product_input(world, mesh, {5, 2}, Layout(Partial()));
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
    const DTensor a = product_input(world, mesh, {3, 1, 2, 5}, Shard(0));
    const DTensor b = product_input(world, mesh, {4, 5, 2}, Replicate());
    EXPECT_EQ(matmul(a, b).layout(), Layout(Shard(0)));
  });
}

TEST(Vectors, KeepTheirCutsThroughProducts) {
  without_collectives({2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor m = product_input(world, mesh, {3, 5}, Shard(0));
    const DTensor cut = product_input(world, mesh, {5}, Shard(0));
    EXPECT_EQ(mv(m, product_input(world, mesh, {5}, Replicate())).layout(), Layout(Shard(0)));
    EXPECT_EQ(dot(cut, cut).layout(), Layout(Partial()));
    const DTensor column = product_input(world, mesh, {3}, Replicate());
    EXPECT_EQ(outer(cut, column).layout(), Layout(Shard(0)));
    EXPECT_EQ(outer(column, cut).layout(), Layout(Shard(1)));
  });
}

TEST(Addmm, AddsAReplicatedBiasOnceWhereTheContractionIsCut) {
  without_collectives({2, 2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor a = product_input(world, mesh, {3, 5}, Layout(Shard(0), Shard(1)));
    const DTensor b = product_input(world, mesh, {5, 2}, Layout(Replicate(), Shard(0)));
    const DTensor bias = product_input(world, mesh, {2}, Layout(Replicate(), Replicate()));
    EXPECT_EQ(addmm(bias, a, b).layout(), Layout(Shard(0), Partial()));
  });
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor y = addmm(product_input(world, mesh, {2}, Replicate()),
                            product_input(world, mesh, {3, 5}, Shard(1)),
                            product_input(world, mesh, {5, 2}, Shard(0)), 3, 0.5);
    const Tensor whole =
        addmm(counting(world, {2}), counting(world, {3, 5}), counting(world, {5, 2}), 3, 0.5);
    EXPECT_EQ(full_tensor(y).to_vector(), whole.to_vector());
    EXPECT_EQ(whole.to_vector()[0], 3 + 0.5 * 95);
    co_return;
  });
}

TEST(Addmm, DoesNotReadTheBiasWithBetaZero) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor nan = Tensor::from_values(world.device(), Shape{1}, DType::F64, Values{NAN});
    const Tensor one = counting(world, {1, 1});
    EXPECT_EQ(addmm(nan, one, one, 0).to_vector(), Values{1});
    EXPECT_THROW(addmm(counting(world, {3}), one, one), Error);
    co_return;
  });
}

TEST(Linear, TakesAVector) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    const Tensor y = linear(x, counting(world, {2, 3}), counting(world, {2}));
    EXPECT_EQ(y.to_vector(), (Values{15, 34}));
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), (Values{5, 7, 9}));
    co_return;
  });
}

TEST(Einsum, SumsOutLoneLettersStretchesOnesReadsDiagonalsAndSortsAnImplicitResult) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor a = counting(world, {2, 3});
    a.set_requires_grad(true);
    const Tensor v = counting(world, {2});
    const Tensor rows = einsum("ij,i->i", a, v);
    EXPECT_EQ(rows.to_vector(), (Values{6, 30}));
    run_backward(sum(rows));
    EXPECT_EQ(a.grad().to_vector(), (Values{1, 1, 1, 2, 2, 2}));
    EXPECT_EQ(einsum("ki, k", a, v).shape(), Shape{3});
    EXPECT_EQ(einsum("ba,c", a, v).shape(), (Shape{3, 2, 2}));
    const Tensor one = counting(world, {1, 3});
    EXPECT_EQ(einsum("ij,ij->ij", a, one).to_vector(), (Values{1, 4, 9, 4, 10, 18}));
    EXPECT_EQ(einsum("ij,ij->", a, one).to_vector(), Values{14 + 32});
    EXPECT_EQ(einsum("ij,ij->j", one, a).to_vector(), (Values{5, 14, 27}));
    const Tensor square = counting(world, {2, 2});
    EXPECT_EQ(einsum("ii,i->i", square, v).to_vector(), (Values{1, 8}));
    EXPECT_EQ(einsum("...ij,jk", counting(world, {3, 1, 2}), square).shape(), (Shape{3, 1, 2}));
    EXPECT_EQ(einsum("...i,...i->...", counting(world, {3, 1, 2}), square).to_vector(),
              (Values{5, 11, 11, 25, 17, 39}));
    co_return;
  });
}

TEST(Einsum, RefusesWhatItCannotRead) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = counting(world, {2, 2});
    for (const char* equation :
         {"ij->ij", "ij,jk,kl", "i,jk->k", "ij,jk->iz", "ij,jk->ii", "...ijk,ij"})
      EXPECT_THROW(einsum(equation, a, a), Error) << equation;
    EXPECT_THROW(einsum("ij,jk->ik", a, counting(world, {3, 2})), Error);
    co_return;
  });
}

TEST(Einsum, CutsByItsEquation) {
  without_collectives({2, 2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor q = product_input(world, mesh, {3, 2, 3, 5}, Layout(Shard(0), Shard(2)));
    const DTensor k = product_input(world, mesh, {3, 4, 3, 5}, Layout(Shard(0), Shard(2)));
    EXPECT_EQ(einsum("bshd,bthd->bhst", q, k).layout(), Layout(Shard(0), Shard(1)));
    const DTensor inner = product_input(world, mesh, {3, 5}, Layout(Shard(1), Shard(1)));
    EXPECT_EQ(einsum("mk,nk->mn", inner, inner).layout(), Layout(Partial(), Partial()));
  });
}

}  // namespace
}  // namespace coshard
