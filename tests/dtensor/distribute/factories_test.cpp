// Factories: their forms, ranges, random numbers that no layout changes, and first values.
#include <coshard/dtensor/distribute/factories.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <coshard/dtensor/distribute/init.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/mesh/default_mesh.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;
using Values = std::vector<double>;

TEST(Factories, NeedNeitherDeviceNorPlacements) {
  on_ranks(2, [](World& world) -> Task<void> {
    EXPECT_EQ(zeros({2, 2}).to_vector(), Values(4, 0));
    EXPECT_EQ(full({2}, 3, DType::I64).dtype(), DType::I64);
    EXPECT_TRUE(ones({2}, DType::F64, true).requires_grad());
    EXPECT_TRUE(randn(world.device(), {2}, DType::F32, true).requires_grad());
    EXPECT_THROW(zeros({2}, DType::I64, true), Error);
    EXPECT_EQ(zeros(world, {2}).device(), world.device());
    const DeviceMesh mesh = init_device_mesh(world, {2});
    EXPECT_EQ(ones(mesh, {4}).layout(), Layout(Replicate()));
    EXPECT_TRUE(ones(mesh, Shard(0), {4}, DType::F32, true).requires_grad());
    const DefaultMesh scope(mesh);
    EXPECT_EQ(ones(Shard(0), {4}).local_shape(), Shape{2});
    EXPECT_FALSE(ones({4}).is_distributed());
    co_return;
  });
}

TEST(Factories, RangesCountAsPyTorchDoes) {
  on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_EQ(arange(3).to_vector(), (Values{0, 1, 2}));
    EXPECT_EQ(arange(3).dtype(), DType::I64);
    EXPECT_EQ(arange(1.0, 2, 0.25).to_vector(), (Values{1, 1.25, 1.5, 1.75}));
    EXPECT_EQ(arange(1.0, 2, 0.25).dtype(), DType::F32);
    EXPECT_EQ(arange(5, 0, -2).to_vector(), (Values{5, 3, 1}));
    EXPECT_EQ(arange(world, 0, 2, 1, DType::F64, true).requires_grad(), true);
    EXPECT_EQ(arange(2, 2).numel(), 0);
    EXPECT_THROW(arange(3, 2), Error);
    EXPECT_THROW(arange(2, 3, 0), Error);
    EXPECT_EQ(linspace(0, 1, 5).to_vector(), (Values{0, 0.25, 0.5, 0.75, 1}));
    EXPECT_EQ(linspace(3, 9, 1).to_vector(), Values{3});
    EXPECT_EQ(linspace(world, 0.1, 0.7, 4, DType::F64).to_vector().back(), 0.7);
    EXPECT_THROW(linspace(0, 1, -1), Error);
    EXPECT_EQ(eye(2).to_vector(), (Values{1, 0, 0, 1}));
    EXPECT_EQ(eye(world, 2, 3).to_vector(), (Values{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(eye(world, 3, 2).to_vector(), (Values{1, 0, 0, 1, 0, 0}));
    co_return;
  });
}

using Factory = std::function<Tensor(const Target&)>;

const std::vector<std::pair<const char*, Factory>>& factories() {
  static const std::vector<std::pair<const char*, Factory>> all{
      {"arange", [](const Target& t) { return arange(t, 0.0, 7, 1, DType::F64); }},
      {"linspace", [](const Target& t) { return linspace(t, -1, 1, 7, DType::F64); }},
      {"eye", [](const Target& t) { return eye(t, 5, 3, DType::F64); }},
      {"randint",
       [](const Target& t) {
         return randint(t, -3, 9, {5, 3}, DType::F64);
       }},
      {"randperm", [](const Target& t) { return randperm(t, 7, DType::F64); }},
      {"rand",
       [](const Target& t) {
         return rand(t, {5, 3}, DType::F64);
       }},
      {"randn",
       [](const Target& t) {
         return randn(t, {5, 3}, DType::F64);
       }},
      {"trunc_normal_",
       [](const Target& t) {
         return nn::init::trunc_normal_(empty(t, {5, 3}, DType::F64), 1, 2, 0, 3);
       }},
      {"kaiming_uniform_",
       [](const Target& t) {
         return nn::init::kaiming_uniform_(empty(t, {5, 3}, DType::F64));
       }},
  };
  return all;
}

TEST(Factories, GiveTheSameTensorInEveryLayout) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3});
    for (const auto& [name, make] : factories()) {
      manual_seed(5);
      const Tensor want = make(world);
      for (const Placement p : {Replicate(), Shard(0), Partial(), Partial(Reduce::Max)}) {
        if (p.is_partial() && std::string(name).back() == '_') continue;
        manual_seed(5);
        const DTensor got = make({mesh, p});
        EXPECT_EQ(got.layout(), Layout(p)) << name;
        EXPECT_EQ(got.full_tensor().to_vector(), want.to_vector()) << name << ' ' << p;
      }
    }
    co_return;
  });
}

TEST(Factories, RandomIntegersAndPermutationsAreWhatTheySay) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = randint(-2, 3, {4000});
    EXPECT_EQ(x.dtype(), DType::I64);
    for (int value = -2; value < 3; ++value)
      EXPECT_NEAR((x == value).to(DType::F64).mean().item(), 0.2, 0.03);
    EXPECT_EQ(x.amin().item(), -2);
    EXPECT_EQ(x.amax().item(), 2);
    EXPECT_THROW(randint(3, 3, {1}), Error);
    Values order = randperm(100).to_vector();
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, arange(100).to_vector());
    co_return;
  });
}

TEST(Factories, LikeAnotherTensor) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DTensor x = ones(init_device_mesh(world, {2}), Shard(0), {4, 2}, DType::F64);
    for (const DTensor& y : {zeros_like(x), ones_like(x), full_like(x, 3), empty_like(x),
                             rand_like(x), randn_like(x)}) {
      EXPECT_EQ(y.layout(), x.layout());
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(y.dtype(), x.dtype());
    }
    EXPECT_EQ(zeros_like(x, DType::I32).dtype(), DType::I32);
    EXPECT_EQ(full_like(x, 0.1, DType::F32, true).requires_grad(), true);
    EXPECT_EQ(ones_like(x.sum(), DType::F32).layout(), Layout(Replicate()));
    EXPECT_EQ(randn_like(x.sum()).layout(), Layout(Replicate()));
    co_return;
  });
}

TEST(Init, BoundsAndDeviationsFollowTheFans) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = empty({64, 128}, DType::F64);
    const auto bound = [&] { return w.abs().amax().item(); };
    const auto deviation = [&] { return std::sqrt(w.var().item()); };
    nn::init::kaiming_uniform_(w, std::sqrt(5));  // as torch.nn.Linear: 1 / sqrt(in)
    EXPECT_NEAR(bound(), 1 / std::sqrt(128), 1e-4);
    EXPECT_LE(bound(), 1 / std::sqrt(128));
    nn::init::kaiming_normal_(w, 0, nn::init::Fan::Out);
    EXPECT_NEAR(deviation(), std::sqrt(2.0 / 64), 5e-3);
    nn::init::xavier_uniform_(w, 2);
    EXPECT_NEAR(bound(), 2 * std::sqrt(6.0 / 192), 1e-3);
    nn::init::xavier_normal_(w);
    EXPECT_NEAR(deviation(), std::sqrt(2.0 / 192), 3e-3);
    nn::init::constant_(w, 0.5);
    EXPECT_EQ(w.mean().item(), 0.5);
    EXPECT_THROW(nn::init::xavier_normal_(empty({3})), Error);
    Tensor leaf = empty({4, 4}, DType::F64, true);
    EXPECT_EQ(nn::init::ones_(leaf).id(), leaf.id());
    EXPECT_TRUE(leaf.requires_grad());
    co_return;
  });
}

TEST(Init, ATruncatedNormalStaysWithinAndKeepsItsShape) {
  on_ranks(1, [](World&) -> Task<void> {
    const Tensor w = nn::init::trunc_normal_(empty({100, 100}, DType::F64), 0, 1, -1, 2);
    EXPECT_GE(w.amin().item(), -1);
    EXPECT_LE(w.amax().item(), 2);
    // Mean (f(-1) - f(2)) / (F(2) - F(-1)) of the standard normal within [-1, 2].
    EXPECT_NEAR(w.mean().item(), 0.2297, 0.03);
    EXPECT_LT(nn::init::trunc_normal_(empty({100}), 0, 0.02).abs().amax().item(), 0.15);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
