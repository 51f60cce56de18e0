// Clipping of gradients: norms over layouts and meshes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/optim/parameters.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::parameter;

TEST(Edges, ClippingRefusesANormTypeOfZeroOrLess) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    for (const double p : {0.0, -2.0}) {
      std::string text = "accepted";
      try {
        Task<Tensor> clipped = clip_grad_norm({x}, 1.0, p);
        co_await std::move(clipped);
      } catch (const Error& error) {
        text = error.what();
      }
      EXPECT_NE(text.find("clip_grad_norm: the norm type must be positive, got "),
                std::string::npos)
          << text;
    }
  });
}

// The norm of [1..7] and of a sharded [1..5], whatever the layouts.
TEST(ClipGradNorm, CountsEveryLogicalElementOnceUnderAnyLayout) {
  for (double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    on_ranks(3, [p_ = p](World& world) {
      struct Body {
        static Task<void> run(World& world, double p) {
          const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
          std::vector<Tensor> parameters{parameter(world, mesh, {7}, Replicate()),
                                         parameter(world, mesh, {5}, Shard(0)),
                                         parameter(world, mesh, {2}, Replicate())};
          for (Tensor& t : parameters) t.set_grad(t.detach());
          parameters[2].set_grad(from_local(counting(world, {2}), mesh, Partial()));  // 3, 6
          Task<Tensor> clipped = clip_grad_norm(parameters, 1.0, p);
          const Tensor total = co_await std::move(clipped);
          const double norm = total.item();
          double want = 0;
          for (double v : {1., 2., 3., 4., 5., 6., 7., 1., 2., 3., 4., 5., 3., 6.})
            want = std::isinf(p) ? std::max(want, v) : want + std::pow(v, p);
          if (!std::isinf(p)) want = std::pow(want, 1 / p);
          EXPECT_NEAR(norm, want, 1e-12 * want);
          const std::vector<double> clipped_last =
              parameters[2].grad().redistribute(Replicate()).tensor().to_vector();
          EXPECT_NEAR(clipped_last[1], 6 / (want + 1e-6), 1e-12);
        }
      };
      return Body::run(world, p_);
    });
  }
}

const Placement kPlacements[] = {Replicate(),
                                 Shard(0),
                                 Partial(),
                                 Partial(Reduce::Avg),
                                 Partial(Reduce::Max),
                                 Partial(Reduce::Min),
                                 Partial(Reduce::Product)};

Task<void> expect_norm_of_squares(DTensor x) {
  const double norm = std::sqrt(220.0);  // of the gradient 2 4 6 8 10
  Task<Tensor> clipped = clip_grad_norm({x}, 1.0);
  const Tensor total = co_await std::move(clipped);
  EXPECT_NEAR(total.item(), norm, 1e-12) << x.layout() << x.grad().layout();
  const std::vector<double> values = full_tensor(x.grad()).to_vector();
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(values[i], 2 * static_cast<double>(i + 1) / (norm + 1e-6), 1e-12)
        << x.layout() << x.grad().layout();
}

TEST(ClipGradNorm, ReducesAPartialGradientWhateverTheLayoutOfItsLeaf) {
  for (const int ranks : {2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
      for (const Placement& leaf : kPlacements) {
        const DTensor x = parameter(world, mesh, {5}, leaf);
        Task<void> back = backward(sum(mul(x, x)));
        co_await std::move(back);
        Task<void> expected = expect_norm_of_squares(x);
        co_await std::move(expected);
        for (const Placement& given : kPlacements) {
          x.set_grad(
              distribute_tensor(counting(world, {5}, DType::F64, 2), mesh, given, std::nullopt));
          Task<void> again = expect_norm_of_squares(x);
          co_await std::move(again);
        }
      }
    });
}

TEST(ClipGradNorm, TakesParametersWithoutDimensions) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
      const Tensor plain = full(world.device(), Shape(), 2, dtype).requires_grad_();
      const DTensor placed = parameter(world, mesh, {3}, Shard(0));
      plain.set_grad(full(world.device(), Shape(), 36, dtype));
      placed.set_grad(mul(placed.detach(), 0.0));
      Task<Tensor> clipped = clip_grad_norm({plain, placed}, 1.0);
      const Tensor total = co_await std::move(clipped);
      EXPECT_EQ(total.item(), 36);
      EXPECT_EQ(plain.grad().shape(), Shape());
      EXPECT_NEAR(plain.grad().item(), 1, 1e-2);
    }
  });
}

TEST(ClipGradNorm, AddsUpMeshesAndPlainParameters) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh square = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh line = init_device_mesh(world, {4}, {"all"});
    DTensor both = distribute_tensor(counting(world, {4, 2}), square, Layout(Shard(0), Replicate()),
                                     std::nullopt);
    both.set_requires_grad(true);
    Tensor plain = counting(world, {2});
    plain.set_requires_grad(true);
    const std::vector<Tensor> parameters{both, parameter(world, line, {5}, Shard(0)), plain, both};
    for (const Tensor& p : parameters) p.set_grad(p.detach());
    Task<Tensor> clipped = clip_grad_norm(parameters, 1.0);
    const Tensor total = co_await std::move(clipped);
    const double norm = total.item();
    EXPECT_NEAR(norm, std::sqrt(204.0 + 55 + 5), 1e-12);
    EXPECT_NEAR(plain.grad().to_vector()[1], 2 / norm, 1e-6);
    EXPECT_EQ(plain.to_vector(), (std::vector<double>{1, 2}));  // shared memory is not written
  });
}

TEST(ClipGradNorm, IsTheSameOnAllRanksOfMeshesWithoutARankInCommon) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const double p : {2.0, std::numeric_limits<double>::infinity()}) {
      const DeviceMesh low = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"low"});
      const DeviceMesh high = DeviceMesh::from_ranks(world, {2, 3}, {2}, {"high"});
      Tensor plain = counting(world, {2});
      plain.set_requires_grad(true);
      const std::vector<Tensor> parameters{parameter(world, low, {3}, Shard(0)),
                                           parameter(world, high, {4}, Replicate()), plain};
      for (const Tensor& t : parameters)
        if (!t.is_distributed() || t.mesh().contains_this_rank()) t.set_grad(t.detach());
      Task<Tensor> clipped = clip_grad_norm(parameters, 1.0, p);
      const Tensor norm = co_await std::move(clipped);
      EXPECT_NEAR(norm.item(), std::isinf(p) ? 4 : std::sqrt(14.0 + 30 + 5), 1e-12);
    }
  });
}

TEST(ClipGradNorm, RefusesMeshesThatHaveSomeRanksInCommon) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh all = DeviceMesh::from_ranks(world, {0, 1, 2}, {3}, {"all"});
    const DeviceMesh some = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"some"});
    const std::vector<Tensor> parameters{parameter(world, all, {3}, Shard(0)),
                                         parameter(world, some, {4}, Shard(0))};
    if (world.rank() < 2) co_return;
    for (const Tensor& t : parameters) t.set_grad(t.detach());
    std::string text;
    try {
      Task<Tensor> clipped = clip_grad_norm(parameters, 1.0);
      co_await std::move(clipped);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_NE(text.find("parameters on all=3 and on some=2"), std::string::npos) << text;
  });
}

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    x.set_grad(counting(world, {3}));
    Task<Tensor> clipped = clip_grad_norm({x}, 100.0);
    const Tensor total = co_await std::move(clipped);
    const double norm = total.item();
    EXPECT_NEAR(norm, std::sqrt(14.0), 1e-14);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 2, 3}));
  });
}

}  // namespace
}  // namespace coshard
