// Reductions, scans and sorting on DTensors: layouts, collectives, and parts of no rows at all.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/distribute/factories.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::expect_values;
using testing::on_ranks;
using testing::shuffled;
using testing::values;

struct Named {
  const char* name;
  Tensor (*run)(const Tensor& x);  // over dimension 0
  // Of the result where dimension 0 is sharded, without a collective; otherwise one collective is
  // needed, which may cut the result another way.
  std::optional<Placement> cut;
  bool integers = true;  // may be asked of them
};

const std::vector<Named>& over_rows() {
  static const std::vector<Named> operators{
      {"sum", [](const Tensor& x) { return sum(x, 0); }, Partial()},
      {"mean", [](const Tensor& x) { return mean(x, 0); }, Partial(), false},
      {"nansum", [](const Tensor& x) { return nansum(x, 0); }, Partial()},
      {"count_nonzero", [](const Tensor& x) { return count_nonzero(x, 0); }, Partial()},
      {"amax", [](const Tensor& x) { return amax(x, 0); }, Partial(Reduce::Max)},
      {"amin", [](const Tensor& x) { return amin(x, 0); }, Partial(Reduce::Min)},
      {"any", [](const Tensor& x) { return any(x, 0); }, Partial(Reduce::Max)},
      {"all", [](const Tensor& x) { return all(x, 0); }, Partial(Reduce::Min)},
      {"prod", [](const Tensor& x) { return prod(x, 0); }, Partial(Reduce::Product)},
      {"norm 0", [](const Tensor& x) { return vector_norm(x, 0, 0); }, Partial(), false},
      {"norm 1", [](const Tensor& x) { return vector_norm(x, 1, 0); }, Partial(), false},
      {"norm inf", [](const Tensor& x) { return vector_norm(x, INFINITY, 0); },
       Partial(Reduce::Max), false},
      {"norm -inf", [](const Tensor& x) { return vector_norm(x, -INFINITY, 0); },
       Partial(Reduce::Min), false},
      {"norm 2", [](const Tensor& x) { return vector_norm(x, 2, 0); }, std::nullopt, false},
      {"norm 3", [](const Tensor& x) { return vector_norm(x, 3, 0); }, std::nullopt, false},
      {"var", [](const Tensor& x) { return var(x, 0); }, std::nullopt, false},
      {"std", [](const Tensor& x) { return stdev(x, 0); }, std::nullopt, false},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, 0); }, std::nullopt, false},
      {"argmax", [](const Tensor& x) { return argmax(x, 0); }, std::nullopt},
      {"argmin", [](const Tensor& x) { return argmin(x, 0); }, std::nullopt},
      {"max", [](const Tensor& x) { return max(x, 0).indices; }, std::nullopt},
      {"kthvalue", [](const Tensor& x) { return kthvalue(x, 2, 0).values; }, std::nullopt}};
  return operators;
}

const std::vector<Named>& along_rows() {
  static const std::vector<Named> operators{
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }, std::nullopt, false},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }, std::nullopt},
      {"cumprod", [](const Tensor& x) { return cumprod(x, 0); }, std::nullopt},
      {"logcumsumexp", [](const Tensor& x) { return logcumsumexp(x, 0); }, std::nullopt, false},
      {"cummax", [](const Tensor& x) { return cummax(x, 0).values; }, std::nullopt},
      {"cummin", [](const Tensor& x) { return cummin(x, 0).indices; }, std::nullopt},
      {"sort", [](const Tensor& x) { return sort(x, 0, true).values; }, std::nullopt},
      {"argsort", [](const Tensor& x) { return argsort(x, 0); }, std::nullopt},
      {"topk", [](const Tensor& x) { return topk(x, 1, 0).indices; }, std::nullopt}};
  return operators;
}

void expect_layouts(World& world, const DeviceMesh& mesh, const std::vector<Named>& operators,
                    Layout kept) {
  const Tensor x = shuffled(world, {5, 3});
  const DTensor rows = distribute_tensor(x, mesh, Shard(0), std::nullopt);
  const DTensor columns = distribute_tensor(x, mesh, Shard(1), std::nullopt);
  for (const Named& op : operators) {
    const Tensor want = op.run(x);
    CountingObserver seen(world);
    const DTensor still = op.run(columns);
    EXPECT_EQ(still.layout(), kept) << op.name;
    EXPECT_EQ(seen.total(), 0) << op.name;
    const DTensor moved = op.run(rows);
    EXPECT_EQ(seen.total(), op.cut ? 0 : 1) << op.name;
    if (op.cut) {
      EXPECT_EQ(moved.layout(), Layout(*op.cut)) << op.name;
    } else {
      EXPECT_FALSE(moved.layout().has_partial()) << op.name;
    }
    expect_values(still, want, op.name);
    expect_values(moved, want, op.name);
  }
}

TEST(ReduceLayout, AnotherDimensionStaysCutAndACutOneBecomesPartialOrIsGathered) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    expect_layouts(world, mesh, over_rows(), Shard(0));
    expect_layouts(world, mesh, along_rows(), Shard(1));
    co_return;
  });
}

TEST(ReduceLayout, RanksWithoutARowTakePart) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    for (const DType dtype : {DType::F64, DType::I64}) {
      const Tensor x = shuffled(world, {2, 3}, dtype);
      const DTensor rows = distribute_tensor(x, mesh, Shard(0), std::nullopt);
      for (const auto* operators : {&over_rows(), &along_rows()}) {
        for (const Named& op : *operators) {
          if (is_floating(dtype) || op.integers) expect_values(op.run(rows), op.run(x), op.name);
        }
      }
      for (const auto run : {amax, amin, prod, any, all})
        expect_values(run(rows, {}, true, {}), run(x, {}, true, {}), "over all");
      expect_values(argmax(rows), argmax(x), "argmax over all");
    }
    co_return;
  });
}

TEST(ReduceLayout, TwoCutsOfOneReductionAreTwoPartials) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"a", "b"});
    const Tensor x = shuffled(world, {3, 4, 5});
    const DTensor cut = distribute_tensor(x, mesh, Layout(Shard(0), Shard(2)), std::nullopt);
    const DTensor both = amax(cut, {0, 2});
    EXPECT_EQ(both.layout(), Layout(Partial(Reduce::Max), Partial(Reduce::Max)));
    expect_values(both, amax(x, {0, 2}), "amax over two");
    const DTensor one = sum(cut, {0, 1}, true);
    EXPECT_EQ(one.layout(), Layout(Partial(), Shard(2)));
    expect_values(one, sum(x, {0, 1}, true), "sum over one of two");
    co_return;
  });
}

TEST(ReduceLayout, PartialsPassWhereTheReductionIsTheirs) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    const auto partial = [&](Reduce reduce) {
      return shuffled(world, {3, 4}).with_spec(make_spec(mesh, Partial(reduce), {3, 4}));
    };
    EXPECT_EQ(amax(partial(Reduce::Max), 0).layout(), Layout(Partial(Reduce::Max)));
    EXPECT_EQ(amin(partial(Reduce::Min), 0).layout(), Layout(Partial(Reduce::Min)));
    EXPECT_EQ(prod(partial(Reduce::Product), 0).layout(), Layout(Partial(Reduce::Product)));
    EXPECT_EQ(mean(partial(Reduce::Avg)).layout(), Layout(Partial(Reduce::Avg)));
    EXPECT_EQ(cumsum(partial(Reduce::Sum), 0).layout(), Layout(Partial()));
    EXPECT_EQ(seen.total(), 0);
    EXPECT_FALSE(amax(partial(Reduce::Sum), 0).layout().has_partial() && seen.total() == 0);
    co_return;
  });
}

TEST(Reduce, NaNWinsWhicheverRankHasIt) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    for (const std::size_t at : {0, 2, 4}) {
      std::vector<double> values{1, 2, 3, 4, 5};
      values[at] = NAN;
      for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
        const Tensor x = Tensor::from_values(world.device(), Shape{5}, dtype, values);
        const DTensor cut = distribute_tensor(x, mesh, Shard(0), std::nullopt);
        EXPECT_TRUE(std::isnan(full_tensor(amax(cut)).item())) << at;
        EXPECT_TRUE(std::isnan(full_tensor(amin(cut)).item())) << at;
        EXPECT_TRUE(std::isnan(max(cut, 0).values.item())) << at;
        EXPECT_EQ(argmin(cut).item(), static_cast<double>(at));
      }
    }
    co_return;
  });
}

TEST(Reduce, IntegersAndBooleansSumAsI64) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = Tensor::from_values(world.device(), Shape{2, 3}, DType::I32,
                                         std::vector<double>{1, 0, 3, 4, 5, 0});
    for (const Tensor& y : {sum(x), prod(x, 0), cumsum(x, 1), count_nonzero(x), argmax(x)})
      EXPECT_EQ(y.dtype(), DType::I64);
    EXPECT_EQ(sum(to(x, DType::Bool), 0).to_vector(), (std::vector<double>{2, 1, 1}));
    EXPECT_EQ(max(x, 1).values.dtype(), DType::I32);
    EXPECT_EQ(any(x).dtype(), DType::Bool);
    EXPECT_THROW(mean(x), Error);
    EXPECT_THROW(sum(x, {0, 0}), Error);
    EXPECT_THROW(sum(x, 2), Error);
    co_return;
  });
}

TEST(Reduce, ShortFloatsAreAveragedInF32) {
  on_ranks(1, [](World& world) -> Task<void> {
    const std::vector<double> ones(1001, 1.0);
    const Tensor x = Tensor::from_values(world.device(), Shape{1001}, DType::BF16, ones);
    EXPECT_EQ(mean(x).item(), 1);
    EXPECT_NEAR(vector_norm(x).item(), std::sqrt(1001), 0.1);
    EXPECT_EQ(mean(x).dtype(), DType::BF16);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
