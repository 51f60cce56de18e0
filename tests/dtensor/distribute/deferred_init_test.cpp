#include <coshard/dtensor/distribute/deferred_init.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/init.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

std::string how_it_ends(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DeferredInit, FactoriesMakeTensorsWithoutMemory) {
  on_ranks(1, [](World& world) -> Task<void> {
    manual_seed(3);
    const std::vector<double> want = randn(world, {3, 4}).to_vector();
    manual_seed(3);
    const std::size_t before = world.device()->memory().in_use;
    const Tensor x = [&] {
      const DeferredInit deferred;
      return randn(world, {3, 4});
    }();
    EXPECT_TRUE(is_deferred(x));
    EXPECT_EQ(world.device()->memory().in_use, before);
    EXPECT_EQ(random_state().next_stream, 1U);
    EXPECT_EQ(x.shape(), (Shape{3, 4}));
    EXPECT_NE(how_it_ends([&] { x.to_vector(); }).find("f32[3,4] has no values yet"),
              std::string::npos);
    EXPECT_FALSE(is_deferred(randn(world, {2})));
    manual_seed(9);
    materialize(x);
    EXPECT_EQ(x.to_vector(), want);
    EXPECT_EQ(random_state().next_stream, 0U);
    materialize(x);
    EXPECT_EQ(x.to_vector(), want);
    EXPECT_FALSE(is_deferred(Tensor()));
    co_return;
  });
}

TEST(DeferredInit, ViewsAndHandlesShareTheRecipe) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x, row, same;
    {
      const DeferredInit deferred;
      x = zeros(world, {2, 3});
      row = select(x, 0, 1);
      same = x.detach();
      fill_(row, 5);
      add_(narrow(x, 1, 0, 1), ones(world, {2, 1}));
    }
    EXPECT_TRUE(is_deferred(row) && is_deferred(same));
    materialize(row);
    EXPECT_FALSE(is_deferred(x) || is_deferred(same));
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 0, 0, 6, 5, 5}));
    EXPECT_EQ(same.to_vector(), x.to_vector());
    fill_(x, 2);
    EXPECT_EQ(row.to_vector(), std::vector<double>(3, 2));
    co_return;
  });
}

TEST(DeferredInit, AnOperatorTakesTheValuesOfItsInputsAtTheCall) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x, twice, own, copied;
    const Tensor real = ones(world, {2});
    {
      const DeferredInit deferred;
      x = ones(world, {2});
      twice = mul(x, 2.0);
      fill_(x, 7);
      own = zeros(world, {2});
      add_(own, x);
      add_(own, own);
      copied = zeros(world, {2});
      copy_(copied, real);
    }
    fill_(real, 4);
    for (const Tensor& each : {own, twice, copied, x}) materialize(each);
    EXPECT_EQ(twice.to_vector(), std::vector<double>(2, 2));
    EXPECT_EQ(own.to_vector(), std::vector<double>(2, 14));
    EXPECT_EQ(copied.to_vector(), std::vector<double>(2, 1));
    EXPECT_EQ(x.to_vector(), std::vector<double>(2, 7));
    co_return;
  });
}

TEST(DeferredInit, WhatCannotBeMadeLaterIsRefusedAtTheCall) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeferredInit deferred;
    const Tensor real = Tensor::from_values(world.device(), {2}, DType::F32, {1, 2});
    EXPECT_FALSE(is_deferred(real));
    const Tensor x = ones(world, {2}), leaf = ones(world, {2}, DType::F32, true);
    const auto refused = [](const std::string& text, const std::string& part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    refused(how_it_ends([&] { copy_(real, x); }), "no values yet");
    refused(how_it_ends([&] { mul(leaf, 2.0); }), "no values yet");
    refused(how_it_ends([&] { fill_(leaf, 2); }), "is a leaf that requires a gradient");
    refused(how_it_ends([&] { copy_(x, ones(world, {3})); }), "[3]");
    refused(how_it_ends([&] { normal_(ones(world, {2}, DType::I64), 0, 1); }),
            "none of f32, f64, bf16 and f16");
    refused(how_it_ends([&] { normal_(x, 0, -1); }), "must not be negative");
    refused(how_it_ends([&] { x.data(); }), "no values yet");
    EXPECT_EQ(real.to_vector(), (std::vector<double>{1, 2}));
    co_return;
  });
}

TEST(DeferredInit, BelongsToItsBranch) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto open = [](World& in) -> Task<bool> {
      const DeferredInit deferred;
      co_return is_deferred(ones(in, {2}));
    };
    const auto closed = [](World& in) -> Task<bool> { co_return is_deferred(ones(in, {2})); };
    Task<bool> a = open(world), b = closed(world);
    auto [is_open, is_closed] = co_await when_all(std::move(a), std::move(b));
    EXPECT_TRUE(is_open);
    EXPECT_FALSE(is_closed);
    EXPECT_FALSE(is_deferred(ones(world, {2})));
  });
}

TEST(DeferredInit, DTensorsAreMadeInTheirLayout) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"x"});
    for (const Layout& layout : {Layout(Shard(0)), Layout(Replicate()), Layout(Partial())}) {
      std::vector<double> values[2];
      for (const bool later : {false, true}) {
        manual_seed(4);
        std::optional<DeferredInit> deferred;
        if (later) deferred.emplace();
        const DTensor x = randn(mesh, layout, {4, 3}), y = full(mesh, layout, {4, 3}, 5);
        EXPECT_EQ(is_deferred(x) && is_deferred(y), later);
        EXPECT_FALSE(is_deferred(randint(Target(mesh, Shard(0)), 0, 5, {4})));
        if (!layout.has_partial()) mul_(x, 2);
        deferred.reset();
        materialize(x);
        materialize(y);
        for (const double v : x.to_local().to_vector()) values[later ? 1 : 0].push_back(v);
        for (const double v : y.to_local().to_vector()) values[later ? 1 : 0].push_back(v);
      }
      EXPECT_EQ(values[0], values[1]);
    }
    co_return;
  });
}

TEST(DeferredInit, LocalRandomAndOtherSeedsAreKept) {
  on_ranks(1, [](World& world) -> Task<void> {
    std::vector<double> values[2];
    for (const bool later : {false, true}) {
      manual_seed(6);
      std::optional<DeferredInit> deferred;
      if (later) deferred.emplace();
      const Tensor common = rand(world, {3});
      const Tensor local = [&] {
        const LocalRandom mine;
        return rand(world, {3});
      }();
      manual_seed(8);
      const Tensor other = rand(world, {3});
      deferred.reset();
      for (const Tensor& x : {other, common, local}) {
        materialize(x);
        for (const double v : x.to_vector()) values[later ? 1 : 0].push_back(v);
      }
    }
    EXPECT_EQ(values[0], values[1]);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
