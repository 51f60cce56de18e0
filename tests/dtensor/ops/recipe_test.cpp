#include "dtensor/ops/recipe.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/init.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

Tensor later(const std::function<Tensor()>& make) {
  const DeferredInit deferred;
  return make();
}

TEST(Recipe, OfDrawsConstantsAndPointwiseOperatorsIsByElement) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Shape shape{4, 3};
    const auto by_element = [](const std::function<Tensor()>& make) {
      const Tensor x = later(make);
      return recipe_of(x)->is_by_element(x);
    };
    EXPECT_TRUE(by_element([&] { return empty(world, shape); }));
    EXPECT_TRUE(by_element([&] { return randn(world, shape); }));
    EXPECT_TRUE(by_element([&] { return nn::init::trunc_normal_(ones(world, shape)); }));
    EXPECT_TRUE(by_element([&] { return mul(rand(world, shape), 2.0); }));
    EXPECT_TRUE(by_element([&] { return add(rand(world, shape), rand(world, shape)); }));
    EXPECT_TRUE(by_element([&] { return clamp_(rand(world, shape), 0.2, 0.3); }));
    EXPECT_FALSE(by_element([&] { return add(rand(world, shape), rand(world, {3})); }));
    EXPECT_FALSE(by_element([&] { return transpose(rand(world, shape), 0, 1); }));
    EXPECT_FALSE(by_element([&] { return sum(rand(world, shape), {0}); }));
    EXPECT_FALSE(by_element([&] {
      const Tensor x = zeros(world, shape);
      fill_(select(x, 0, 1), 3);
      return x;
    }));
    EXPECT_EQ(recipe_of(ones(world, shape)), nullptr);
    co_return;
  });
}

// Bytes that making this rank's rows takes at most, and the rows.
std::pair<std::size_t, std::vector<double>> peak_of(World& world, const Tensor& whole) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"x"});
  const DTensor rows = distribute_tensor(whole, mesh, Shard(0));
  const std::size_t before = world.device()->memory().in_use;
  materialize(rows);
  return {world.device()->memory().peak - before, rows.to_local().to_vector()};
}

TEST(Recipe, ByElementMakesPartsAndNeverTheWhole) {
  on_ranks(4, [](World& world) -> Task<void> {
    const Shape shape{64, 256};  // 64 KiB
    manual_seed(1);
    const auto [part, rows] = peak_of(world, later([&] { return randn(world, shape); }));
    EXPECT_LE(part, std::size_t{16} << 10);
    manual_seed(1);
    const auto [whole, same] = peak_of(world, later([&] {
                                         const Tensor x = randn(world, shape);
                                         return transpose(transpose(x, 0, 1).contiguous(), 0, 1);
                                       }));
    EXPECT_GE(whole, std::size_t{64} << 10);
    EXPECT_EQ(rows, same);
    co_return;
  });
}

TEST(Recipe, CutsWithoutCommunication) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"x"});
    manual_seed(2);
    const Tensor want = randn(world, {4, 3});
    manual_seed(2);
    const Tensor x = later([&] { return randn(world, {4, 3}); });
    CountingObserver counter(world);
    const DTensor rows = distribute_tensor(x, mesh, Shard(0));
    const DTensor columns = distribute_tensor(transpose(x, 0, 1), mesh, Shard(0));
    const DTensor same = from_local(x, mesh);
    EXPECT_TRUE(is_deferred(rows) && is_deferred(columns) && is_deferred(same));
    for (const Tensor& each : {columns, rows, same}) materialize(each);
    EXPECT_EQ(counter.total(), 0);
    EXPECT_FALSE(is_deferred(x));  // the memory is that of `same`
    EXPECT_EQ(full_tensor(rows).to_vector(), want.to_vector());
    EXPECT_EQ(full_tensor(columns).to_vector(), transpose(want, 0, 1).to_vector());
    EXPECT_EQ(same.to_vector(), want.to_vector());
    co_return;
  });
}

TEST(Recipe, TakesMemoryForAllThatShareIt) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = later([&] { return ones(world, {2, 2}); });
    const Tensor row = select(x, 0, 1);
    EXPECT_TRUE(recipe_of(x)->covers(x));
    EXPECT_FALSE(recipe_of(x)->covers(row));
    EXPECT_EQ(recipe_of(x), recipe_of(row));
    const std::uint32_t writes = x.storage()->changes();
    take_memory(x, full(world, {2, 2}, 3));
    EXPECT_EQ(row.to_vector(), std::vector<double>(2, 3));
    EXPECT_NE(x.storage()->changes(), writes);
    require_values(row);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
