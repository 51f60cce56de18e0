// Products of rows: parts of them, and sums of several.
#include "dtensor/ops/row_product.h"

#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::shuffled;

struct Two {
  Tensor a, b, of_a, of_b;  // [2, 6, 4] @ [3, 4]^T and [2, 6, 5] @ [3, 5]^T
};
Two two_of(World& world, DType dtype) {
  return {shuffled(world, {2, 6, 4}, dtype), shuffled(world, {2, 6, 5}, dtype),
          shuffled(world, {3, 4}, dtype), shuffled(world, {3, 5}, dtype)};
}
DTensor whole(const DeviceMesh& mesh, const Tensor& x) { return from_local(x, mesh, Replicate()); }

TEST(RowProduct, SumsTheRowsOfItsFactors) {
  for (const DType dtype : {DType::F32, DType::F64})
    on_ranks(1, [dtype](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
      const Two of = two_of(world, dtype);
      const RowProduct sum(
          {{whole(mesh, of.a), whole(mesh, of.of_a)}, {whole(mesh, of.b), whole(mesh, of.of_b)}});
      const Tensor want = add(linear(of.a, of.of_a), linear(of.b, of.of_b));
      for (const int dim : {0, 1}) {
        const Tensor out = Tensor::empty(world.device(), sum.local_shape(), sum.dtype());
        for (int part = 0; part < 3; ++part) {
          const Chunk rows = chunk_of(out.size(dim), 3, part);
          sum.compute(dim, rows, part_of(out, dim, rows));
        }
        EXPECT_EQ(out.to_vector(), want.to_vector()) << dtype << " along " << dim;
      }
      co_return;
    });
}

TEST(RowProduct, TakesRowsOfAllLeadingDimensionsOnceFlat) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const Two of = two_of(world, DType::F64);
    RowProduct sum(
        {{whole(mesh, of.a), whole(mesh, of.of_a)}, {whole(mesh, of.b), whole(mesh, of.of_b)}});
    sum.flatten();
    const Tensor out = Tensor::empty(world.device(), Shape{12, 3}, sum.dtype());
    for (int part = 0; part < 5; ++part) {
      const Chunk rows = chunk_of(12, 5, part);
      sum.compute(0, rows, part_of(out, 0, rows));
    }
    EXPECT_EQ(out.to_vector(), add(linear(of.a, of.of_a), linear(of.b, of.of_b)).to_vector());
    co_return;
  });
}

TEST(RowProduct, OfAGradientMultipliesByTheWeightItself) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const Tensor dy = shuffled(world, {4, 3}), weight = shuffled(world, {3, 5});
    const RowProduct product({gradient_factor(whole(mesh, dy), whole(mesh, weight))});
    const Tensor out = Tensor::empty(world.device(), product.local_shape(), product.dtype());
    product.compute(0, {4, 0}, out);
    EXPECT_EQ(out.to_vector(), matmul(dy, weight).to_vector());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
