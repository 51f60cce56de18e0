#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/optim/optimizer.h"
#include "dtensor/redistribute/redistribute.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

DTensor parameter(World& world, const DeviceMesh& mesh, const Shape& shape, Placement p) {
  DTensor x = distribute_tensor(counting(world, shape), mesh, p, std::nullopt);
  x.set_requires_grad(true);
  return x;
}

TEST(ReduceGradients, ManyPartialsAreOneAllReduce) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    std::vector<Tensor> parameters;
    for (std::int64_t size : {5, 0, 7, 2}) {
      parameters.push_back(parameter(world, mesh, {size}, Replicate()));
      parameters.back().set_grad(
          from_local(counting(world, {size}, DType::F64, world.rank() + 1), mesh, Partial()));
    }
    parameters.push_back(parameter(world, mesh, {6}, Shard(0)));
    parameters.back().set_grad(
        distribute_tensor(counting(world, {6}), mesh, Shard(0), std::nullopt));
    CountingObserver seen(world);
    Task<void> reduced = reduce_gradients(parameters);
    co_await std::move(reduced);
    EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 1);
    EXPECT_EQ(seen.total(), 1);
    for (const Tensor& p : parameters) EXPECT_EQ(p.grad().layout(), p.layout());
    EXPECT_EQ(parameters[2].grad().to_vector(), (std::vector<double>{6, 12, 18, 24, 30, 36, 42}));
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
          Task<double> clipped = clip_grad_norm(parameters, 1.0, p);
          const double norm = co_await std::move(clipped);
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

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    x.set_grad(counting(world, {3}));
    Task<double> clipped = clip_grad_norm({x}, 100.0);
    const double norm = co_await std::move(clipped);
    EXPECT_NEAR(norm, std::sqrt(14.0), 1e-14);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 2, 3}));
  });
}

}  // namespace
}  // namespace coshard
