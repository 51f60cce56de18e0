// Branches of a when_all communicate in one order on all ranks; where they cannot, it is an error
// on all ranks, and nothing is added to the wrong tensor.
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::branch_order {
namespace {
using namespace std::chrono_literals;
using testing::await_sum;
using testing::counting;
using testing::End;
using testing::ends_of;
using testing::one_mesh;
using testing::other_mesh;
using testing::quick_options;
using testing::term;

// --- ranks outside of a mesh ---

// Something that a rank outside of `inner` takes no part in, but awaits like the others.
using Inner = Task<void> (*)(World& world, DeviceMesh inner);

Task<void> awaits_it(World& world, DeviceMesh inner) {
  const Redistribution issued = term(world, inner, 1).redistribute(Replicate());
  co_await issued;
}
Task<void> awaits_the_host(World& world, DeviceMesh inner) {
  const Redistribution issued = term(world, inner, 1).redistribute(Replicate());
  co_await issued.host();
}
Task<void> takes_shards(World& world, DeviceMesh inner) {
  const DTensor x = distribute_tensor(counting(world, {4}), inner, Shard(0), std::nullopt);
  Redistribution issued = x.redistribute(Replicate());
  std::optional<ArrivedShard> shard = co_await issued.next_shard();
}
Task<void> goes_backward(World& world, DeviceMesh inner) {
  DTensor x = distribute_tensor(counting(world, {4, 2}), inner, Shard(0), std::nullopt);
  x.set_requires_grad(true);
  const DTensor w = distribute_tensor(counting(world, {2, 4}), inner, Shard(1), std::nullopt);
  const DTensor y = mul(x, 2).redistribute(Replicate()).tensor();
  const DTensor loss = sum(matmul(y, w));  // the gradient of y is Partial: a reduce_scatter
  Task<void> walk = backward(loss);
  co_await std::move(walk);
}
Task<void> reduces_gradients(World& world, DeviceMesh inner) {
  DTensor w = distribute_tensor(counting(world, {4}), inner, Replicate(), std::nullopt);
  w.set_requires_grad(true);
  w.set_grad(from_local(counting(world, {4}), inner, Partial()));
  Task<void> reduced = reduce_gradients({w});
  co_await std::move(reduced);
}
Task<void> transfers(World& world, DeviceMesh inner) {
  const DTensor x = distribute_tensor(counting(world, {4}), inner, Shard(0), std::nullopt);
  const DeviceMesh swapped = DeviceMesh::from_ranks(world, {1, 0}, {2}, {"swapped"});
  const Redistribution issued = redistribute(x, swapped, Layout(Replicate()));
  co_await issued;
}

Task<void> inner_then_sum(World& world, DeviceMesh inner, Inner first, double& sum) {
  Task<void> before = first(world, inner);
  co_await std::move(before);
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<void> after = await_sum(world, all, 1, sum);
  co_await std::move(after);
}

struct Sums {
  double one = 0, hundred = 0;
};
Task<void> one_beside_hundred(World& world, Inner first, Sums& sums) {
  const DeviceMesh inner = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"inner"});
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<void> one = inner_then_sum(world, inner, first, sums.one);
  Task<void> hundred = await_sum(world, all, 100, sums.hundred);
  Task<void> both = when_all(std::move(one), std::move(hundred));
  co_await std::move(both);
}

void expect_own_sums(Inner first) {
  std::vector<Sums> sums(3);
  const std::vector<End> ends = ends_of(quick_options(3), [&](World& world) {
    return one_beside_hundred(world, first, sums[static_cast<std::size_t>(world.rank())]);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(ends[rank].failed) << ends[rank];
    EXPECT_EQ(sums[rank].one, 3) << "rank " << rank;
    EXPECT_EQ(sums[rank].hundred, 300) << "rank " << rank;
  }
}

TEST(BranchOrder, ARankOutsideAwaitsARedistributeLikeTheOthers) { expect_own_sums(awaits_it); }
TEST(BranchOrder, ARankOutsideAwaitsTheHostLikeTheOthers) { expect_own_sums(awaits_the_host); }
TEST(BranchOrder, ARankOutsideTakesShardsLikeTheOthers) { expect_own_sums(takes_shards); }
TEST(BranchOrder, ARankOutsideGoesBackwardLikeTheOthers) { expect_own_sums(goes_backward); }
TEST(BranchOrder, ARankOutsideReducesGradientsLikeTheOthers) { expect_own_sums(reduces_gradients); }
TEST(BranchOrder, ARankOutsideTransfersLikeTheOthers) { expect_own_sums(transfers); }

// --- the same collectives in another order ---

constexpr int kFirstLine = __LINE__ + 1;
Redistribution first_sum(const DTensor& x) { return x.redistribute(Replicate()); }
constexpr int kSecondLine = __LINE__ + 1;
Redistribution second_sum(const DTensor& x) { return x.redistribute(Replicate()); }

std::string line(int number) { return str_cat("branch_order_test.cpp:", number); }

using Sum = Redistribution (*)(const DTensor& x);

Task<void> sleep_then_sum(World& world, std::chrono::milliseconds nap, Sum sum, double value,
                          std::optional<double>& result) {
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  const DTensor x = term(world, all, value);
  co_await sleep_for(nap);
  const Redistribution issued = sum(x);
  const Tensor total = co_await issued;
  result = total.item();
}

struct Results {
  std::optional<double> one, hundred;
};
Task<void> sleeps_of_different_lengths(World& world, Results& results) {
  const auto here = world.rank() == 0 ? 1ms : 60ms, there = world.rank() == 0 ? 60ms : 1ms;
  Task<void> one = sleep_then_sum(world, here, first_sum, 1, results.one);
  Task<void> hundred = sleep_then_sum(world, there, second_sum, 100, results.hundred);
  Task<void> both = when_all(std::move(one), std::move(hundred));
  co_await std::move(both);
}

void expect_both_branches_are_named(const std::vector<End>& ends) {
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("disagree")) << end;
    EXPECT_TRUE(end.names("branch")) << end;
    EXPECT_TRUE(end.names(line(kFirstLine))) << end;
    EXPECT_TRUE(end.names(line(kSecondLine))) << end;
  }
}

TEST(BranchOrder, EqualCollectivesOfSwappedBranchesAreAnErrorThatNamesBoth) {
  std::vector<Results> results(2);
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) {
    return sleeps_of_different_lengths(world, results[static_cast<std::size_t>(world.rank())]);
  });
  expect_both_branches_are_named(ends);
  for (const Results& result : results) {
    EXPECT_EQ(result.one.value_or(2), 2);
    EXPECT_EQ(result.hundred.value_or(200), 200);
  }
}

// Rank 0 has two branches; rank 1 does the same without them, the second first.
Task<void> first_on_one(World& world) {
  const Redistribution issued = first_sum(term(world, one_mesh(world), 1));
  co_await issued;
}
Task<void> yields_then_second_on_other(World& world) {
  const DeviceMesh mesh = other_mesh(world);
  for (int i = 0; i < 3; ++i) co_await yield();
  const Redistribution issued = second_sum(term(world, mesh, 1));
  co_await issued;
}
Task<void> branches_on_rank_0(World& world) {
  one_mesh(world);
  other_mesh(world);
  if (world.rank() == 0) {
    Task<void> first = first_on_one(world), second = yields_then_second_on_other(world);
    Task<void> both = when_all(std::move(first), std::move(second));
    co_await std::move(both);
  } else {
    const Redistribution second = second_sum(term(world, other_mesh(world), 1));
    co_await second;
    const Redistribution first = first_sum(term(world, one_mesh(world), 1));
    co_await first;
  }
}

TEST(BranchOrder, ARankWithoutTheBranchesOfTheOtherGetsTheErrorAndNoTimeout) {
  const std::vector<End> ends = ends_of(quick_options(2), branches_on_rank_0);
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_FALSE(end.names("timeout")) << end;
    EXPECT_TRUE(end.names("branch")) << end;
    EXPECT_TRUE(end.names(line(kSecondLine))) << end;
  }
}

}  // namespace
}  // namespace coshard::branch_order
