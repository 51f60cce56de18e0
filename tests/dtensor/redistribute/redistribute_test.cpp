#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

// A DTensor of `layout` whose logical value is `full`. Parts of a sum are uneven and of both signs.
DTensor with_layout(World& world, const DeviceMesh& mesh, const Tensor& full,
                    const Layout& layout) {
  DTensor x = distribute_tensor(full, mesh, layout, std::nullopt);
  for (int m = 0; m < layout.ndim(); ++m) {
    if (!layout[m].is_partial() || mesh.size(m) == 1) continue;
    std::vector<double> values = x.to_local().to_vector();
    const int n = mesh.size(m), rank = mesh.local_rank(m);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double share = 100.0 * static_cast<double>(i + 1) * (m + 1);
      values[i] += rank == 0 ? share * (n - 1) : -share;
    }
    x = Tensor::from_values(world.device(), x.local_shape(), x.dtype(), values).with_spec(x.spec());
  }
  return x;
}

std::vector<double> local_of(const Tensor& full, const DeviceMesh& mesh, const Layout& layout) {
  return distribute_tensor(full, mesh, layout, std::nullopt).to_local().to_vector();
}

TEST(Redistribute, EveryPairOnOneDimensionGivesTheRightPartAndTheFewestCollectives) {
  for (int ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [](World& world) -> Task<void> {
      const int n = world.size();
      const DeviceMesh mesh = init_device_mesh(world, {n}, {"tp"});
      CountingObserver seen(world);
      for (std::int64_t a = 0; a <= 2 * n + 1; ++a) {
        for (std::int64_t b : {std::int64_t{1}, std::int64_t{n}, std::int64_t{2 * n + 1}}) {
          const Tensor full = counting(world, {a, 3, b});
          for (Placement from : {Replicate(), Shard(0), Shard(1), Shard(2), Partial()}) {
            for (Placement to : {Replicate(), Shard(0), Shard(1), Shard(2)}) {
              const DTensor x = with_layout(world, mesh, full, from);
              seen.reset();
              Redistribution r = x.redistribute(to);
              const DTensor y = co_await r;
              EXPECT_EQ(y.layout(), Layout(to));
              EXPECT_EQ(y.shape(), full.shape());
              EXPECT_EQ(y.to_local().to_vector(), local_of(full, mesh, to)) << from << to << full;
              const int most = n == 1 || from == to || from.is_replicate() ? 0 : 1;
              EXPECT_LE(seen.total(), most) << from << to;
              // With fewer elements all may lie on the first rank, before and after.
              if (a > 1 && b > 1) {
                EXPECT_EQ(seen.total(), most) << from << to << full;
              }
            }
          }
        }
      }
    });
  }
}

TEST(Redistribute, EachPairIssuesTheCollectiveOfItsKind) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {5, 3});
    const auto kind_of = [&](Placement from, Placement to) {
      const DTensor x = with_layout(world, mesh, full, from);
      CountingObserver seen(world);
      x.redistribute(to).tensor().wait();
      for (CollectiveKind k : {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                               CollectiveKind::ReduceScatter, CollectiveKind::AllToAll})
        if (seen.count(k)) return k;
      return CollectiveKind::Barrier;
    };
    EXPECT_EQ(kind_of(Shard(0), Replicate()), CollectiveKind::AllGather);
    EXPECT_EQ(kind_of(Partial(), Replicate()), CollectiveKind::AllReduce);
    EXPECT_EQ(kind_of(Partial(), Shard(1)), CollectiveKind::ReduceScatter);
    EXPECT_EQ(kind_of(Shard(0), Shard(1)), CollectiveKind::AllToAll);
    co_return;
  });
}

TEST(Redistribute, EveryPairOnTwoDimensionsGivesTheRightPart) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Placement all[] = {Replicate(), Shard(0), Shard(1), Partial()};
    for (const Shape& shape : {Shape{4, 6}, Shape{5, 3}, Shape{1, 2}, Shape{3, 0}}) {
      const Tensor full = counting(world, shape);
      for (int from = 0; from < 16; ++from) {
        for (int to = 0; to < 9; ++to) {
          const Layout source(all[from / 4], all[from % 4]);
          const Layout target(all[to / 3], all[to % 3]);
          const DTensor x = with_layout(world, mesh, full, source);
          const DTensor y = redistribute(x, target).tensor();
          EXPECT_EQ(y.to_local().to_vector(), local_of(full, mesh, target))
              << source << target << full;
        }
      }
    }
    co_return;
  });
}

TEST(Redistribute, TheSameLayoutIsTheSameTensor) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {5, 3}), mesh, Shard(0), std::nullopt);
    EXPECT_EQ(x.redistribute(Shard(0)).tensor().id(), x.id());
    EXPECT_EQ(x.redistribute(Shard(-2)).tensor().id(), x.id());
    co_return;
  });
}

TEST(Redistribute, AReplicaThatIsCutDoesNotAliasItsSource) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4, 3}), mesh, Replicate(), std::nullopt);
    EXPECT_NE(x.redistribute(Shard(0)).tensor().storage(), x.storage());
    co_return;
  });
}

TEST(Redistribute, TheResultIsInFlightUntilItIsAwaited) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {1024, 256});
    const DTensor x = distribute_tensor(full, mesh, Shard(0), std::nullopt);
    Redistribution r = x.redistribute(Replicate());
    EXPECT_TRUE(r.tensor().in_flight());
    const Tensor later = transpose(r.tensor(), 0, 1);
    EXPECT_TRUE(later.in_flight());  // a view of it stays in flight
    const DTensor y = co_await r;
    EXPECT_FALSE(y.in_flight());
    EXPECT_FALSE(later.in_flight());
    co_await r.host();
    EXPECT_EQ(y.to_vector(), full.to_vector());
  });
}

TEST(Redistribute, ShardsArriveOwnFirstThenInRankOrder) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor full = counting(world, {7, 4});  // 3, 3, 1
    const DTensor x = distribute_tensor(full, mesh, Shard(0), std::nullopt);
    Redistribution r = x.redistribute(Replicate());
    int expected = world.rank();
    std::int64_t rows = 0;
    while (true) {
      const std::optional<ArrivedShard> part = co_await r.next_shard();
      if (!part) break;
      EXPECT_EQ(part->rank, expected);
      EXPECT_EQ(part->offset, 3 * part->rank);
      EXPECT_EQ(part->size, part->rank == 2 ? 1 : 3);
      std::vector<double> want;
      for (std::int64_t i = 0; i < part->size * 4; ++i)
        want.push_back(static_cast<double>(part->offset * 4 + i + 1));
      EXPECT_EQ(part->tensor.to_vector(), want);
      expected = (expected + 1) % 3;
      rows += part->size;
    }
    EXPECT_EQ(rows, 7);
    EXPECT_EQ(r.tensor().to_vector(), full.to_vector());
  });
}

TEST(Redistribute, SiblingsIssueBeforeTheFirstAwaitReturns) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {64, 64}), mesh, Shard(0), std::nullopt);
    std::vector<int> order;
    struct Branch {
      static Task<void> run(DTensor x, std::vector<int>& order, int id) {
        Redistribution r = x.redistribute(Replicate());
        order.push_back(id);
        const DTensor y = co_await r;
        order.push_back(id + 10);
      }
    };
    std::vector<Task<void>> branches;
    for (int id = 0; id < 3; ++id) branches.push_back(Branch::run(x, order, id));
    Task<void> all = when_all(std::move(branches));
    co_await std::move(all);
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 10, 11, 12}));
  });
}

TEST(Redistribute, WhatHasNoMeaningIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {4, 3});
    const DTensor x = distribute_tensor(full, mesh, Replicate(), std::nullopt);
    try {
      x.redistribute(Partial());
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "redistribute: f64[4,3] R on tp=2 to P(sum): R cannot become P(sum)");
    }
    EXPECT_THROW(x.redistribute(Shard(0), Replicate()), Error);
    EXPECT_THROW(x.redistribute(Shard(2)), Error);
    EXPECT_THROW(full.redistribute(Shard(0)), Error);
    co_return;
  });
}

// Backward of a redistribute: (source, target, collectives in backward) for a gradient that arrives
// in the target layout.
TEST(Redistribute, ItsBackwardIsTheMirroredRedistribute) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {5, 3});
    struct Case {
      Placement from, to, gradient;
      int collectives;
      Placement grad_layout;
    };
    const Case cases[] = {
        {Shard(0), Replicate(), Replicate(), 0, Shard(0)},
        {Shard(0), Replicate(), Partial(), 1, Shard(0)},
        {Replicate(), Shard(0), Shard(0), 1, Replicate()},
        {Shard(0), Shard(1), Shard(1), 1, Shard(0)},
        {Partial(), Replicate(), Replicate(), 0, Replicate()},
        {Partial(), Shard(0), Shard(0), 1, Replicate()},
    };
    for (const Case& c : cases) {
      DTensor x = with_layout(world, mesh, full, c.from);
      x.set_requires_grad(true);
      const DTensor y = x.redistribute(c.to).tensor();
      y.wait();
      const DTensor dy = with_layout(world, mesh, full, c.gradient);
      CountingObserver seen(world);
      Task<void> walk = backward(y, dy);
      co_await std::move(walk);
      EXPECT_EQ(seen.total(), c.collectives) << c.from << c.to;
      EXPECT_EQ(x.grad().layout(), Layout(c.grad_layout)) << c.from << c.to;
      EXPECT_EQ(full_tensor(x.grad()).to_vector(), full.to_vector()) << c.from << c.to;
    }
  });
}

TEST(Redistribute, AShardBecomesASumWithoutMovingAnything) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor full = counting(world, {4, 3});  // 2, 2, 0 rows
    DTensor x = distribute_tensor(full, mesh, Shard(0), std::nullopt);
    x.set_requires_grad(true);
    CountingObserver seen(world);
    const DTensor y = x.redistribute(Partial()).tensor();
    EXPECT_EQ(y.layout(), Layout(Partial()));
    EXPECT_EQ(y.local_shape(), (Shape{4, 3}));
    const DTensor dy = distribute_tensor(full, mesh, Replicate(), std::nullopt);
    Task<void> walk = backward(y, dy);
    co_await std::move(walk);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(x.grad().to_vector(), x.to_local().to_vector());
    EXPECT_EQ(full_tensor(y).to_vector(), full.to_vector());
  });
}

TEST(Redistribute, ItsDtypesAreThoseOfWhatIsSent) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const double third = 1.0 / 3;
    const Tensor full =
        Tensor::from_values(world.device(), {2}, DType::F32, std::vector<double>{third, -third});
    DTensor x = distribute_tensor(full, mesh, Shard(0), std::nullopt);
    x.set_requires_grad(true);
    const RedistributeOptions options{.forward_dtype = DType::BF16, .backward_dtype = DType::BF16};
    const DTensor y = redistribute(x, Replicate(), options).tensor();
    EXPECT_EQ(y.dtype(), DType::BF16);
    const double rounded = 0.333984375;
    EXPECT_EQ(y.to_vector(), (std::vector<double>{rounded, -rounded}));
    const DTensor dy = distribute_tensor(full, mesh, Replicate(), std::nullopt);
    Task<void> walk = backward(y, dy);
    co_await std::move(walk);
    EXPECT_EQ(x.grad().dtype(), DType::F32);
    EXPECT_EQ(std::abs(x.grad().to_vector()[0]), rounded);
  });
}

// f = sum over y of y^3, y = x redistributed: f' = 3 x^2, and g = sum of f'^2 has g' = 36 x^3.
TEST(Redistribute, IsTwiceDifferentiable) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    for (const std::int64_t size : {1, 4, 6, 7}) {
      const Tensor full = counting(world, {size, 2});
      for (Placement from : {Shard(0), Replicate(), StridedShard(0, 2), StridedShard(0, 1, 2)}) {
        for (Placement to : {Replicate(), Shard(1), Shard(0)}) {
          DTensor x = distribute_tensor(full, mesh, from, std::nullopt);
          x.set_requires_grad(true);
          const DTensor y = x.redistribute(to).tensor();
          const DTensor cube = mul(y, mul(y, y));
          const DTensor ones = distribute_tensor(
              Tensor::from_values(world.device(), full.shape(), DType::F64,
                                  std::vector<double>(static_cast<std::size_t>(full.numel()), 1)),
              mesh, Replicate(), std::nullopt);
          Task<void> once = backward(cube, ones, {.create_graph = true});
          co_await std::move(once);
          const DTensor slope = x.grad();
          EXPECT_TRUE(slope.requires_grad());
          x.set_grad({});
          const DTensor square = mul(slope, slope);
          Task<void> twice = backward(square, ones);
          co_await std::move(twice);
          const std::vector<double> values = full.to_vector();
          const std::vector<double> first = full_tensor(slope.detach()).to_vector();
          const std::vector<double> second = full_tensor(x.grad()).to_vector();
          for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_DOUBLE_EQ(first[i], 3 * std::pow(values[i], 2)) << from << to;
            EXPECT_DOUBLE_EQ(second[i], 36 * std::pow(values[i], 3)) << from << to;
          }
          x.set_grad({});
        }
      }
    }
  });
}

// What writes to the source waits until the transfer has read it.
TEST(Redistribute, TakesTheValuesThatTheSourceHadWhenItWasIssued) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const std::vector<double> was = {1, 2, 3, 4};
    const auto write = [](const DTensor& x) { fill_(x, 7); };
    const auto draw = [](const DTensor& x) { normal_(x, 100, 0); };
    for (const Layout& layout : {Layout(Shard(0)), Layout(Partial())}) {
      for (const auto change : {+write, +draw}) {
        const DTensor x = distribute_tensor(counting(world, {4}), mesh, layout);
        const Redistribution all = x.redistribute(Replicate());
        change(x);
        const DTensor y = co_await all;
        EXPECT_EQ(y.to_vector(), was);
      }
    }
    const DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    const Tensor first = select(x, 0, 0), sums = cumsum(x, 0);  // gathered, in flight
    const Tensor twice = redistribute(x, Replicate(), {.forward_dtype = DType::F32}).tensor();
    mul_(slice(x, 0, 0, 4), 5.0);
    EXPECT_EQ(neg(first).to_vector(), std::vector<double>{-5}) << "a view";
    EXPECT_EQ(sums.to_vector(), (std::vector<double>{1, 3, 6, 10}));
    EXPECT_EQ(twice.to_vector(), was);
  });
}

// A writer waits for all of them; each is issued by that, and then reads the buffer in its turn.
TEST(Redistribute, DeferredManyTimesTakesTheValuesFromBeforeAWrite) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    std::vector<Redistribution> later;
    {
      const DeferRedistributes deferring;
      for (int i = 0; i < 40; ++i) later.push_back(x.redistribute(Replicate()));
    }
    fill_(x, 7);
    for (const Redistribution& one : later) {
      const DTensor y = co_await one;
      EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 2, 3, 4}));
    }
    const Redistribution after = x.redistribute(Replicate());
    const DTensor y = co_await after;
    EXPECT_EQ(y.to_vector(), (std::vector<double>{7, 7, 7, 7}));
  });
}

}  // namespace
}  // namespace coshard
