#include <coshard/dtensor/optim/data_parallel.h>

#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/dtensor/optim/parameters.h"
#include "tests/dtensor/optim/small_net.h"
#include "tests/support/seeds.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::parameter;
using testing::refusal_of;
using testing::SmallNet;
using AllValues = std::vector<std::vector<double>>;

DeviceMesh replicas(World& world) { return init_device_mesh(world, {world.size()}, {"dp"}); }

// Parameters after three steps; all gradients are reduced after backward unless there are options.
Task<AllValues> trained(World& world, DType dtype, Reduce reduce,
                        std::optional<DataParallelOptions> options) {
  const SmallNet net(world, dtype);
  const DeviceMesh mesh = replicas(world);
  AdamW optimizer(net.parameters, {.lr = 0.05});
  std::optional<DataParallel> parallel;
  if (options) {
    options->reduce = reduce;
    parallel.emplace(net.parameters, mesh, 0, *options);
  }
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    co_await net.run(step);
    if (!parallel) all_reduce_gradients(net.parameters, mesh, 0, reduce);
    Task<Tensor> clipped = clip_grad_norm(net.parameters, 0.5);
    co_await std::move(clipped);
    co_await optimizer.step();
  }
  co_return net.values();
}

Task<void> expect_as_after_backward(World& world, DType dtype, Reduce reduce) {
  const AllValues want = co_await trained(world, dtype, reduce, std::nullopt);
  for (const Overlap overlap : {Overlap::Off, Overlap::Auto, Overlap::Always})
    for (const std::int64_t bytes : {0, 1, 150}) {
      const DataParallelOptions options{.overlap = overlap, .bucket_bytes = bytes};
      const AllValues got = co_await trained(world, dtype, reduce, options);
      EXPECT_EQ(got, want) << overlap << ", " << bytes << " bytes, " << dtype;
    }
}

TEST(DataParallel, TrainsBitwiseAsReducingAfterBackwardDoes) {
  for (const int ranks : {2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      co_await expect_as_after_backward(world, DType::F32, Reduce::Avg);
      co_await expect_as_after_backward(world, DType::F64, Reduce::Sum);
      co_await expect_as_after_backward(world, DType::BF16, Reduce::Avg);
    });
}

TEST(DataParallel, TrainsAlikeUnderEveryInterleaving) {
  WorldOptions options;
  options.ranks = 4;
  options.threads = 1;
  const auto simulated = [&](std::uint64_t seed) {
    std::vector<AllValues> got(4);
    const Program program = [&](World& world) -> Task<void> {
      const DataParallelOptions buckets{.bucket_bytes = 1};
      AllValues mine = co_await trained(world, DType::F32, Reduce::Avg, buckets);
      got[static_cast<std::size_t>(world.rank())] = std::move(mine);
    };
    SimOptions sim;
    sim.processes = seed % 2 == 0 ? 1 : 2;
    simulate(options, program, seed, sim);
    return got;
  };
  const AllValues want = simulated(0)[0];
  const std::uint64_t first = testing::first_seed();
  const std::uint64_t count = std::min<std::uint64_t>(testing::seeds(), 1000);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::vector<AllValues> got = simulated(seed);
    for (const AllValues& one : got) ASSERT_EQ(one, want) << testing::how_to_replay(seed);
  }
}

TEST(DataParallel, DoesNothingForOneReplica) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DeviceMesh mesh = init_device_mesh(world, {1, 2}, {"dp", "tp"});
    DataParallel parallel(net.parameters, mesh, 0);
    parallel.set_requires_gradient_sync(false);
    CountingObserver seen(world);
    co_await net.run(0);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_TRUE(parallel.bucket_bytes().empty());
  });
}

// The last parameters of the list first, also one that backward does not reach: 4 and 3, then 2 to
// 0.
TEST(DataParallel, CutsBucketsFromTheEndOfTheListTheFirstSmallest) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DataParallel parallel(net.parameters, replicas(world), 0, {.bucket_bytes = 200});
    EXPECT_TRUE(parallel.bucket_bytes().empty());
    CountingObserver seen(world);
    co_await net.run(0);
    // 4, of which backward has no gradient, and 3; then the others
    EXPECT_EQ(parallel.bucket_bytes(), (std::vector<std::int64_t>{192, 384}));
    EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 2);
    EXPECT_EQ(seen.total(), 2);
    const auto buffer = [&net](int i) {
      return net.parameters[static_cast<std::size_t>(i)].grad().storage()->buffer;
    };
    EXPECT_NE(buffer(3), buffer(2));
    EXPECT_EQ(buffer(2), buffer(0));
    EXPECT_FALSE(net.parameters[4].grad().defined());
    seen.reset();
    net.zero_grad();
    co_await net.run(1);
    EXPECT_EQ(seen.total(), 2);
  });
}

// Gradients and what a bucket's all_reduce moves are the same memory, in every step, clipped too.
TEST(DataParallel, KeepsOneGradientOfEachParameter) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DataParallel parallel(net.parameters, replicas(world), 0);
    std::vector<void*> first;
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      co_await net.run(step);
      Task<Tensor> clipped = clip_grad_norm(net.parameters, 1e-3);
      co_await std::move(clipped);
      for (std::size_t i = 0; i < 4; ++i) {
        void* data = net.parameters[i].grad().data();
        if (step == 0)
          first.push_back(data);
        else
          EXPECT_EQ(data, first[i]) << i;
      }
    }
  });
}

Task<AllValues> accumulated(World& world, bool as_buckets, Reduce reduce) {
  const SmallNet net(world);
  const DeviceMesh mesh = replicas(world);
  std::optional<DataParallel> parallel;
  if (as_buckets) parallel.emplace(net.parameters, mesh, 0, DataParallelOptions{.reduce = reduce});
  CountingObserver seen(world);
  for (int part = 0; part < 3; ++part) {
    if (parallel) parallel->set_requires_gradient_sync(part == 2);
    EXPECT_EQ(seen.total(), 0);
    co_await net.run(part);
  }
  if (!parallel) all_reduce_gradients(net.parameters, mesh, 0, reduce);
  EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 1);
  co_return net.gradients();
}

TEST(DataParallel, ReducesGradientsOfSeveralBackwardsAtTheLast) {
  on_ranks(3, [](World& world) -> Task<void> {
    for (const Reduce reduce : {Reduce::Sum, Reduce::Avg}) {
      const AllValues want = co_await accumulated(world, false, reduce);
      const AllValues got = co_await accumulated(world, true, reduce);
      EXPECT_EQ(got, want);
    }
  });
}

// As in torch: the average of what was averaged before and of what came since.
TEST(DataParallel, AveragesAgainWhatASecondBackwardAddsButRefusesToSumTwice) {
  on_ranks(2, [](World& world) -> Task<void> {
    const AllValues want = co_await accumulated(world, false, Reduce::Avg);
    const SmallNet net(world, DType::F32);
    {
      const DataParallel parallel(net.parameters, replicas(world), 0);
      for (int part = 0; part < 3; ++part) co_await net.run(part);
      const AllValues got = net.gradients();
      for (std::size_t p = 0; p < 4; ++p)
        for (std::size_t i = 0; i < want[p].size(); ++i)
          EXPECT_NEAR(got[p][i], want[p][i], 1e-4 * (1 + std::abs(want[p][i])));
    }
    net.zero_grad();
    const DataParallel parallel(net.parameters, replicas(world), 0, {.reduce = Reduce::Sum});
    co_await net.run(0);
    const std::string text = co_await refusal_of(net.run(1));
    EXPECT_NE(text.find("of a DataParallel is a sum over ranks already and would be counted again"),
              std::string::npos)
        << text;
  });
}

// A hook sees this rank's own gradient; what it returns or sets is reduced.
TEST(DataParallel, RunsHooksBeforeAGradientLeaves) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world, DType::F64);
    co_await net.run(0);
    const AllValues own = net.gradients();
    all_reduce_gradients(net.parameters, replicas(world), 0);
    const AllValues want = net.gradients();
    net.zero_grad();
    std::vector<std::string> order;
    register_hook(net.parameters[3], [&](const Tensor& g) {
      order.emplace_back("hook");
      return mul(g, 2.0);
    });
    register_post_accumulate_grad_hook(net.parameters[3], [&](const Tensor& p) {
      order.emplace_back("accumulated");
      EXPECT_EQ(p.grad().to_vector()[0], 2 * own[3][0]);
      p.set_grad(mul(p.grad(), 2.0));
    });
    const DataParallel parallel(net.parameters, replicas(world), 0, {.reduce = Reduce::Sum});
    co_await net.run(0);
    EXPECT_EQ(order, (std::vector<std::string>{"hook", "accumulated"}));
    const AllValues got = net.gradients();
    EXPECT_EQ(got[0], want[0]);
    for (std::size_t i = 0; i < want[3].size(); ++i) EXPECT_EQ(got[3][i], 4 * want[3][i]);
  });
}

// A tp-sharded weight and one whose gradient is Partial over tp keep their layouts.
TEST(DataParallel, SumsOverReplicasOfAnotherMeshDimension) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh tp = mesh["tp"];
    const double own = 1 + mesh.local_rank("dp");
    const std::vector<Tensor> parameters{parameter(world, tp, {7}, Shard(0)),
                                         parameter(world, tp, {7}, Replicate())};
    const Tensor scale =
        distribute_tensor(counting(world, {7}, DType::F64, own), tp, Shard(0), std::nullopt);
    const DataParallel parallel(parameters, mesh, 0, {.reduce = Reduce::Sum});
    CountingObserver seen(world);
    const Tensor y = mul(mul(parameters[0], scale), parameters[1]);
    const Tensor loss = sum(y);
    co_await backward(loss);
    EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 1);
    EXPECT_EQ(parameters[0].grad().layout(), Layout(Shard(0)));
    EXPECT_EQ(full_tensor(parameters[0].grad()).to_vector()[6], 3 * 7 * 7);
    EXPECT_EQ(full_tensor(parameters[1].grad()).to_vector()[6], 3 * 7 * 7);
  });
}

// What is in flight is the same on all ranks, also on one that takes no part.
TEST(DataParallel, LeavesTheGradientsOfARankOutsideOfTheMesh) {
  on_ranks(3, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DeviceMesh pair = DeviceMesh::from_ranks(world, {0, 2}, {2}, {"dp"});
    co_await net.run(0);
    const AllValues own = net.gradients();
    net.zero_grad();
    const DataParallel parallel(net.parameters, pair, 0);
    co_await net.run(0);
    EXPECT_TRUE(net.parameters[0].grad().in_flight());
    SGD optimizer(net.parameters);
    co_await optimizer.step();
    EXPECT_FALSE(net.parameters[0].grad().in_flight());
    EXPECT_EQ(net.gradients() == own, world.rank() == 1);
  });
}

// Samples as a DTensor: the gradient of a Replicate weight is Partial along its own mesh.
TEST(DataParallel, MakesGradientsThatArePartialAlongItReplicate) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = replicas(world);
    const Tensor x = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0), std::nullopt);
    const std::vector<Tensor> parameters{parameter(world, mesh, {4, 2}, Replicate())};
    const Tensor first = sum(linear(x, parameters[0]));
    co_await backward(first);
    EXPECT_TRUE(parameters[0].grad().layout().has_partial());
    const std::vector<double> want = full_tensor(parameters[0].grad()).to_vector();
    parameters[0].set_grad(Tensor());
    const DataParallel parallel(parameters, mesh, 0, {.reduce = Reduce::Sum});
    const Tensor second = sum(linear(x, parameters[0]));
    co_await backward(second);
    EXPECT_EQ(parameters[0].grad().layout(), Layout(Replicate()));
    EXPECT_EQ(parameters[0].grad().to_vector(), want);
  });
}

// loss = sum((x a)^2) + sum(c^2) on the mesh itself: a's gradient is a sum over ranks, c's whole.
TEST(DataParallel, LeavesAReplicatedGradientOfItsOwnMeshAsItIs) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = replicas(world);
    const DTensor x = distribute_tensor(counting(world, {6, 2}), mesh, Shard(0), std::nullopt);
    const auto run = [&](std::vector<Tensor> of) -> Task<void> {
      const Tensor y = matmul(x, of[0]), c = of[1];
      const Tensor loss = add(sum(mul(y, y)), sum(mul(c, c)));
      co_await backward(loss);
    };
    const auto leaves = [&] {
      return std::vector<Tensor>{parameter(world, mesh, {2, 2}, Replicate()),
                                 parameter(world, mesh, {3}, Replicate())};
    };
    const std::vector<Tensor> want = leaves();
    Task<void> first = run(want);
    co_await std::move(first);
    Task<void> reduced = reduce_gradients(want);
    co_await std::move(reduced);
    for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
      const std::vector<Tensor> got = leaves();
      const DataParallel parallel(got, mesh, 0, {.reduce = Reduce::Sum, .overlap = overlap});
      Task<void> again = run(got);
      co_await std::move(again);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got[i].grad().layout(), Layout(Replicate()));
        EXPECT_EQ(got[i].grad().to_vector(), want[i].grad().to_vector()) << i;
      }
    }
  });
}

}  // namespace
}  // namespace coshard
