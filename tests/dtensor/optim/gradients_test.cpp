#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/optim/parameters.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::parameter;

Task<void> expect_reduced_replicas(World& world, Reduce reduce) {
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  const DeviceMesh tp = mesh["tp"];
  const double own = 1 + mesh.local_rank("dp");
  std::vector<Tensor> parameters{parameter(world, tp, {6}, Shard(0)),
                                 parameter(world, tp, {3}, Replicate()), counting(world, {2})};
  parameters[2].set_requires_grad(true);
  const Tensor cut = counting(world, {6}, DType::F64, own);
  parameters[0].set_grad(distribute_tensor(cut, tp, Shard(0), std::nullopt));
  parameters[1].set_grad(from_local(counting(world, {3}, DType::F64, own), tp, Partial()));
  parameters[2].set_grad(counting(world, {2}, DType::F64, own));
  CountingObserver seen(world);
  all_reduce_gradients(parameters, mesh, mesh.dim("dp"), reduce);
  EXPECT_EQ(seen.count(CollectiveKind::AllReduce), 1);
  EXPECT_EQ(seen.total(), 1);
  const double factor = reduce == Reduce::Sum ? 3 : 1.5;
  EXPECT_EQ(parameters[0].grad().layout(), Layout(Shard(0)));
  EXPECT_EQ(full_tensor(parameters[0].grad()).to_vector()[5], 6 * factor);
  EXPECT_EQ(parameters[1].grad().layout(), Layout(Partial()));
  EXPECT_EQ(full_tensor(parameters[1].grad()).to_vector()[2], 2 * 3 * factor);
  EXPECT_EQ(parameters[2].grad().to_vector()[1], 2 * factor);
  EXPECT_THROW(all_reduce_gradients(parameters, mesh, 2), Error);
  EXPECT_THROW(all_reduce_gradients(parameters, mesh, 0, Reduce::Max), Error);
  co_return;
}

TEST(ReduceGradients, APartialOfAShardedParameterIsScattered) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Layout layouts[] = {
        {Replicate(), Shard(0)}, {Shard(0), Shard(0)}, {Shard(0), Replicate()}};
    for (const Layout& layout : layouts) {
      DTensor w = distribute_tensor(counting(world, {6}), mesh, layout, std::nullopt);
      w.set_requires_grad(true);
      w.set_grad(from_local(counting(world, {6}), mesh, Layout(Partial(), Partial())));
      CountingObserver seen(world);
      Task<void> reduced = reduce_gradients({w});
      co_await std::move(reduced);
      EXPECT_GE(seen.total(), 1) << layout;  // of six elements: an all_reduce that is sliced
      if (layout == layouts[1]) {
        EXPECT_EQ(seen.count(CollectiveKind::ReduceScatter), 1);
      }
      EXPECT_EQ(w.grad().layout(), layout);
      EXPECT_EQ(full_tensor(w.grad()).to_vector(), (std::vector<double>{4, 8, 12, 16, 20, 24}));
    }
  });
}

// All ranks then agree on what the gradient is, and on what a step can do with it.
TEST(ReduceGradients, ARankOutsideTheMeshHasTheSameLayout) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh pair = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"pair"});
    for (const Placement leaf : {Replicate(), Shard(0), Partial(Reduce::Max)}) {
      const DTensor w = parameter(world, pair, {4}, leaf);
      w.set_grad(distribute_tensor(counting(world, {4}), pair, Partial(), std::nullopt));
      Task<void> reduced = reduce_gradients({w});
      co_await std::move(reduced);
      EXPECT_EQ(w.grad().layout(), leaf.is_partial() ? Layout(Replicate()) : Layout(leaf));
    }
  });
}

// The largest over tp of each rank of dp, then the sum of these.
TEST(ReduceGradients, InnerMeshDimensionsComeFirst) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    DTensor w = distribute_tensor(counting(world, {1}), mesh, Layout(Replicate(), Replicate()),
                                  std::nullopt);
    w.set_requires_grad(true);
    const double own[] = {1, 5, 7, 2};
    w.set_grad(from_local(counting(world, {1}, DType::F64, own[world.rank()]), mesh,
                          Layout(Partial(), Partial(Reduce::Max))));
    Task<void> reduced = reduce_gradients({w});
    co_await std::move(reduced);
    EXPECT_EQ(full_tensor(w.grad()).to_vector(), (std::vector<double>{5 + 7}));
  });
}

TEST(AllReduceGradients, RefuseAPartialThatDoesNotAddUp) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DTensor w = parameter(world, mesh["tp"], {3}, Replicate());
    w.set_grad(from_local(counting(world, {3}), mesh["tp"], Partial(Reduce::Max)));
    std::string text;
    try {
      all_reduce_gradients({w}, mesh, 0);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_NE(text.find("call reduce_gradients first"), std::string::npos) << text;
    co_return;
  });
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

TEST(AllReduceGradients, SumsOrAveragesReplicasInOneCollective) {
  for (const Reduce reduce : {Reduce::Sum, Reduce::Avg})
    on_ranks(4, [reduce](World& world) { return expect_reduced_replicas(world, reduce); });
}

// What the error says; "" if there is none.
std::string said(const std::vector<Tensor>& parameters, const DeviceMesh& mesh, int dim) {
  try {
    all_reduce_gradients(parameters, mesh, dim, Reduce::Avg);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Averaging them would mix elements of different shards, or count partial values twice.
TEST(AllReduceGradients, RefusesShardsAndPartialsAlongTheDimension) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh tp = mesh["tp"], flat = mesh.flatten();
    const Tensor whole = counting(world, {8});
    const Tensor sharded = parameter(world, tp, {8}, Shard(0));
    sharded.set_grad(distribute_tensor(whole, tp, Shard(0), std::nullopt));
    const Tensor partial = parameter(world, tp, {8}, Replicate());
    partial.set_grad(from_local(whole, tp, Partial()));
    Tensor on_both = distribute_tensor(whole, mesh, Layout(Shard(0), Replicate()), std::nullopt);
    on_both.set_requires_grad(true);
    on_both.set_grad(distribute_tensor(whole, mesh, Layout(Shard(0), Replicate()), std::nullopt));
    Tensor plain = counting(world, {8});
    plain.set_requires_grad(true);
    plain.set_grad(whole);
    CountingObserver seen(world);
    const int other = world.rank() ^ 1;
    EXPECT_EQ(
        said({plain, sharded}, mesh, 1),
        str_cat("all_reduce_gradients along 'tp' of (dp=2,tp=2): the gradient of parameter 1 is "
                "f64[8] S(0) on tp=2, so ranks ",
                world.rank(), " and ", other,
                " hold different parts of it; pass a dimension along which it is "
                "replicated"));
    EXPECT_NE(said({sharded}, tp, 0), "");
    EXPECT_NE(said({sharded}, flat, 0), "");
    EXPECT_NE(said({partial}, mesh, 1), "");
    EXPECT_NE(said({on_both}, mesh, 0), "");
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(said({sharded, partial, plain}, mesh, 0), "");
    EXPECT_EQ(said({on_both, plain}, mesh, 1), "");
    co_return;
  });
}

// Steps on which every rank has all gradients, then one on which rank 1 has none for parameter 1.
Task<void> miss_one(World& world, const Placement& placement, bool everywhere) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  std::vector<Tensor> parameters{parameter(world, mesh, {4}, placement),
                                 parameter(world, mesh, {4}, placement)};
  SGD optimizer(parameters, {.lr = 0.5});
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    for (std::size_t i = 0; i < 2; ++i)
      if (i == 0 || step < 4 || (world.rank() == 0 && !everywhere))
        parameters[i].set_grad(
            distribute_tensor(counting(world, {4}), mesh, placement, std::nullopt));
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
  }
  const DTensor terms = ones(mesh, Partial(), {1});
  co_await terms.redistribute(Replicate());
}

// What the program's error says; "" if there is none.
template <class Program>
std::string end_of(Program program) {
  try {
    on_ranks(2, program);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    return error.what();
  }
  return "";
}

TEST(MissingGradient, OfOneRankIsNamedAfterAnyStepOfAnOptimizer) {
  for (const Placement placement : {Placement(Replicate()), Placement(Shard(0))}) {
    const std::string text =
        end_of([&](World& world) { return miss_one(world, placement, false); });
    EXPECT_NE(text.find("; rank 0 has not done so before; rank 1 last stepped an optimizer with "
                        "no gradient for parameter 1 of 2"),
              std::string::npos)
        << text;
    EXPECT_EQ(end_of([&](World& world) { return miss_one(world, placement, true); }), "");
  }
}

// Both buckets have four elements; without the note they would be added up.
TEST(MissingGradient, OfDifferentParametersIsNamedByAllReduceGradients) {
  const std::string text = end_of([](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    std::vector<Tensor> parameters{counting(world, {4}), counting(world, {4})};
    for (Tensor& p : parameters) p.set_requires_grad(true);
    const Tensor& present = parameters[static_cast<std::size_t>(world.rank())];
    present.set_grad(counting(world, {4}));
    all_reduce_gradients(parameters, mesh, 0);
    std::vector<Tensor> gradients{present.grad()};
    Task<void> arrived = arrival_of(std::move(gradients));
    co_await std::move(arrived);
  });
  EXPECT_NE(
      text.find("; rank 0 last called all_reduce_gradients with no gradient for parameter 1 "
                "of 2; rank 1 last called all_reduce_gradients with no gradient for parameter "
                "0 of 2"),
      std::string::npos)
      << text;
}

TEST(AllReduceGradients, LeavesAReplicatedGradientOfThatDimensionAsItIs) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    for (const Reduce reduce : {Reduce::Sum, Reduce::Avg}) {
      const Tensor p = parameter(world, mesh, {3}, Replicate());
      p.set_grad(distribute_tensor(counting(world, {3}), mesh, Replicate(), std::nullopt));
      all_reduce_gradients({p}, mesh, 0, reduce);
      EXPECT_EQ(p.grad().to_vector(), (std::vector<double>{1, 2, 3})) << to_string(reduce);
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
