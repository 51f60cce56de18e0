// Schedules of products of rows: values, what they issue, and when other work is done.
#include "dtensor/ops/row_schedules.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/support/hidden_products.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using testing::on_slow_ranks;
using testing::shuffled;

// Two factors whose sum over ranks is wanted.
std::vector<RowFactor> two_factors(World& world, const DeviceMesh& mesh, const Shape& x) {
  std::vector<RowFactor> factors;
  for (const std::int64_t k : {4, 6}) {
    Shape shape = x;
    shape.back() = k;
    factors.push_back({distribute_tensor(shuffled(world, shape), mesh, Shard(-1)),
                       distribute_tensor(shuffled(world, {3, k}), mesh, Shard(1))});
  }
  return factors;
}
testing::Values want_of(World& world, const Shape& x) {
  Tensor sum;
  for (const std::int64_t k : {4, 6}) {
    Shape shape = x;
    shape.back() = k;
    const Tensor term = linear(shuffled(world, shape), shuffled(world, {3, k}));
    sum = sum.defined() ? add(sum, term) : term;
  }
  return sum.to_vector();
}

TEST(RowSchedules, SumSeveralProductsInOneReduction) {
  for (const int ranks : {2, 3})
    for (const Shape& shape :
         {Shape{7, 0}, Shape{2, 5, 0}, Shape{1, 3, 0}, Shape{2, 5, 3, 0}, Shape{2, 3, 4, 2, 0}})
      on_ranks(ranks, [&shape](World& world) -> Task<void> {
        const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
        for (int dim = -1; dim + 1 < static_cast<int>(shape.size()); ++dim)
          for (const int pieces : {1, 3}) {
            RowProduct product(two_factors(world, mesh, shape));
            CountingObserver seen(world);
            Task<Tensor> rows = rows_summed(product, dim, pieces, nullptr);
            const Tensor sum = co_await std::move(rows);
            EXPECT_EQ(seen.total(), dim < 0 ? pieces : pieces * (world.size() - 1));
            EXPECT_EQ(sum.layout(), dim < 0 ? Layout(Replicate()) : Layout(Shard(dim)));
            EXPECT_EQ(full_tensor(sum).to_vector(), want_of(world, shape)) << shape << " " << dim;
          }
      });
}

// When all rows have been sent, and before the first wait.
TEST(RowSchedules, DoOtherWorkWhileTheSumTravels) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const int dim : {-1, 0}) {
      RowProduct product(two_factors(world, mesh, {8, 0}));
      const testing::HiddenProducts hidden(world);
      int before = -1;
      const Meanwhile meanwhile = [&] { before = hidden.count(); };
      Task<Tensor> rows = rows_summed(product, dim, 2, meanwhile);
      const Tensor sum = co_await std::move(rows);
      // Of the 4 (reduced: 2) blocks of two products each, all but the first are computed under it.
      EXPECT_EQ(hidden.count(), dim < 0 ? 2 : 6);
      EXPECT_EQ(before, hidden.count());
    }
  });
}

TEST(RowSchedules, DoOtherWorkOnceTheOwnShardIsComputed) {
  on_slow_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    const DTensor x = distribute_tensor(shuffled(world, {9, 4}), mesh, Shard(0));
    const DTensor weight = distribute_tensor(shuffled(world, {8, 4}), mesh, Shard(0));
    const testing::HiddenProducts hidden(world);
    const Tensor whole = x.redistribute(Replicate()).tensor();
    RowProduct product({{whole, weight}});
    int before = -1;
    const Meanwhile meanwhile = [&] { before = hidden.count(); };
    Task<Tensor> rows = rows_as_they_arrive(product, 0, meanwhile);
    const Tensor y = co_await std::move(rows);
    EXPECT_EQ(before, world.rank() == 3 ? 0 : 1);  // of 9 rows, rank 3 has none
    EXPECT_EQ(full_tensor(y).to_vector(),
              linear(shuffled(world, {9, 4}), shuffled(world, {8, 4})).to_vector());
  });
}

}  // namespace
}  // namespace coshard
