#include "dtensor/mesh/bounded_cache.h"

#include <gtest/gtest.h>

#include <limits>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/redistribute/plan.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

CacheSize size_of_cache(std::string_view name) {
  for (const CacheSize& size : cache_sizes())
    if (size.name == name) return size;
  return {name};
}

std::size_t cached_bytes() {
  std::size_t bytes = 0;
  for (const CacheSize& size : cache_sizes()) bytes += size.bytes;
  return bytes;
}

TEST(BoundedCache, AllCachesOfARankTogetherStayWithinTheLimit) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    std::size_t most = 0;
    for (int i = 1; i < 5000; ++i) {
      const DTensor x = zeros(mesh, Shard(0), Shape{i, 2});
      static_cast<void>(add(x, x));
      plan_for(x.spec(), Replicate(), DType::F32);
      most = std::max(most, cached_bytes());
    }
    EXPECT_LE(most, kCacheBytes);
    EXPECT_GT(most, kCacheBytes / 2);
    for (const char* name : {"specs", "plans", "decisions"})
      EXPECT_GT(size_of_cache(name).entries, 100U) << name;
    co_return;
  });
}

TEST(BoundedCache, WhatIsUsedAgainIsKept) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const auto spec = make_spec(mesh, Shard(0), {7, 3});
    const auto used = plan_for(spec, Replicate(), DType::F32),
               unused = plan_for(spec, Shard(1), DType::F32);
    for (int i = 1; i < 20'000; ++i) {
      make_spec(mesh, Shard(0), {i, 2});
      EXPECT_EQ(plan_for(spec, Replicate(), DType::F32), used);
    }
    EXPECT_NE(plan_for(spec, Shard(1), DType::F32), unused);  // forgotten, and made anew
    co_return;
  });
}

TEST(BoundedCache, EqualSpecsStayOneObjectWhileOneIsInUse) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), Shape{7, 3});
    for (int i = 1; i < 20'000; ++i) make_spec(mesh, Shard(0), {i, 2});
    EXPECT_LT(size_of_cache("specs").entries, 10'000U);
    EXPECT_EQ(make_spec(mesh, Shard(0), {7, 3}), x.spec());
    co_return;
  });
}

// Decisions, plans and transfers are forgotten while they run.
TEST(BoundedCache, WhatRunsOutlivesItsBeingForgotten) {
  testing::on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh line = init_device_mesh(world, {4}, {"all"});
    const Tensor a = testing::counting(world, {6, 5}), b = testing::counting(world, {5, 7});
    const Tensor whole = matmul(a, b);
    set_cache_limit(0);
    for (int round = 0; round < 3; ++round) {
      const DTensor x = distribute_tensor(a, mesh, Layout(Shard(0), Shard(1)), std::nullopt);
      const DTensor w = distribute_tensor(b, mesh, Layout(Shard(1), Shard(1)), std::nullopt);
      const DTensor y = matmul(x, w);
      Redistribution arriving = redistribute(y, Layout(Replicate(), Replicate()));
      static_cast<void>(add(x, x));
      EXPECT_LE(size_of_cache("plans").entries, 1U);
      const DTensor all = co_await arriving;
      EXPECT_EQ(all.raw_local().to_vector(), whole.to_vector());
      Redistribution moving = redistribute(y, line, Layout(Shard(0)));
      static_cast<void>(add(x, x));
      const DTensor moved = co_await moving;
      const DTensor back = co_await redistribute(moved, Layout(Replicate()));
      EXPECT_EQ(back.raw_local().to_vector(), whole.to_vector());
    }
  });
}

TEST(BoundedCache, ShardsThatArriveOneByOneOutliveTheirPlan) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x =
        distribute_tensor(testing::counting(world, {4, 3}), mesh, Shard(0), std::nullopt);
    set_cache_limit(0);
    Redistribution arriving = redistribute(x, Layout(Replicate()));
    for (int i = 1; i < 100; ++i)
      plan_for(make_spec(mesh, Shard(0), {i, 5}), Replicate(), DType::F32);
    std::int64_t rows = 0;
    while (const auto shard = co_await arriving.next_shard()) {
      EXPECT_EQ(shard->dim, 0);
      rows += shard->size;
    }
    EXPECT_EQ(rows, 4);
  });
}

TEST(BoundedCache, DropoutAndNaNScalarsAreDecidedOnce) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = ones(mesh, Shard(0), Shape{4, 3});
    const DTensor mask = eq(x, x);
    const auto decided = [&] {
      const Tensor dropped = dropout(x, 0.5);
      static_cast<void>(masked_fill(x, mask, std::numeric_limits<double>::quiet_NaN()));
      return size_of_cache("decisions").entries;
    };
    const std::size_t once = decided();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(decided(), once);
    co_return;
  });
}

TEST(BoundedCache, AMeshThatOnlyCachesKnowIsForgotten) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const auto use = [&](const DeviceMesh& mesh) {
      const DTensor x = zeros(mesh, Shard(0), Shape{4, 3});
      static_cast<void>(add(x, x));
      plan_for(x.spec(), Replicate(), DType::F32);
      return x;
    };
    const DeviceMesh kept = init_device_mesh(world, {2}, {"kept"});
    use(kept);
    const DTensor living = use(init_device_mesh(world, {2}, {"held by a tensor"}));
    forget_dropped_meshes();
    const std::size_t bytes = cached_bytes();
    for (int i = 0; i < 10; ++i) use(init_device_mesh(world, {2}, {"dropped"}));
    EXPECT_GT(cached_bytes(), bytes);
    forget_dropped_meshes();
    EXPECT_EQ(cached_bytes(), bytes);
    EXPECT_EQ(make_spec(living.mesh(), Shard(0), {4, 3}), living.spec());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
