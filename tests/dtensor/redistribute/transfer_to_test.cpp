// transfer(x, from, to): a plain tensor from one rank to another, called by all.
#include <coshard/dtensor/redistribute/transfer_to.h>

#include <gtest/gtest.h>

#include <vector>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::transfer_to {
namespace {
using testing::await_sum;
using testing::counting;
using testing::CountingObserver;
using testing::End;
using testing::ends_of;
using testing::on_ranks;
using testing::quick_options;
using Values = std::vector<double>;

// 1, 2, 3, … times the number of the rank from one on.
Tensor of_rank(World& world, const Shape& shape) {
  return counting(world, shape, DType::F64, world.rank() + 1);
}
Values times(const Values& values, double factor) {
  Values product = values;
  for (double& v : product) v *= factor;
  return product;
}

Task<void> from_0_to_2(World& world, Shape shape) {
  const Tensor x = of_rank(world, shape);
  const Values own = x.to_vector(), first = counting(world, shape).to_vector();
  CountingObserver seen(world);
  const Redistribution issued = transfer(x, 0, 2);
  EXPECT_EQ(seen.total(), world.rank() == 1 ? 0 : 1);
  const Tensor y = co_await issued;
  EXPECT_EQ(y.shape(), shape);
  EXPECT_FALSE(y.in_flight());
  EXPECT_EQ(y.to_vector(), world.rank() == 2 ? first : own);
  if (y.numel() > 0) {
    EXPECT_EQ(y.address() == x.address(), world.rank() != 2) << "no copy, but on the target";
  }
  EXPECT_EQ(x.to_vector(), own);
}

TEST(TransferTo, TheTargetGetsTheTensorOfTheSourceAndTheOthersKeepTheirs) {
  for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{0, 2}, Shape{300, 200}})
    on_ranks(3, [&](World& world) { return from_0_to_2(world, shape); });
}

Task<void> to_itself(World& world) {
  const Tensor x = of_rank(world, {3});
  CountingObserver seen(world);
  const Redistribution issued = transfer(x, 1, 1);
  const Tensor y = co_await issued;
  EXPECT_EQ(seen.total(), 0);
  EXPECT_EQ(y.id(), x.id());
}
TEST(TransferTo, ToTheSourceItselfIsTheTensor) { on_ranks(2, to_itself); }

Task<void> a_transposed_tensor(World& world) {
  const Tensor x = of_rank(world, {3, 4}), turned = transpose(x, 0, 1);
  const Redistribution issued = transfer(turned, 0, 1);
  const Tensor y = co_await issued;
  const Values want = transpose(counting(world, {3, 4}), 0, 1).to_vector();
  EXPECT_EQ(y.to_vector(), world.rank() == 1 ? want : turned.to_vector());
}
TEST(TransferTo, StridesAreTheSendersOwnAffair) { on_ranks(2, a_transposed_tensor); }

// What is sent is itself in flight: it goes on from rank to rank, and nobody waits between.
Task<void> relay(World& world) {
  const int n = world.size();
  Tensor x = of_rank(world, {500, 40});
  for (int rank = 0; rank + 1 < n; ++rank) x = transfer(x, rank, rank + 1).tensor();
  EXPECT_TRUE(x.in_flight());
  const Redistribution last = transfer(x, n - 1, 0);
  const Tensor y = co_await last;
  EXPECT_EQ(y.to_vector(), counting(world, {500, 40}).to_vector());
}
TEST(TransferTo, WhatIsInFlightIsSentWhenItIsThere) {
  for (const int ranks : {2, 3, 4}) on_ranks(ranks, relay);
}

// Every rank gives its tensor to the next one: all are issued before one is awaited.
Task<Values> around_the_ring(World& world, double scale) {
  const int n = world.size();
  const Tensor x = counting(world, {64}, DType::F64, scale * (world.rank() + 1));
  std::vector<Redistribution> issued;
  for (int rank = 0; rank < n; ++rank) issued.push_back(transfer(x, rank, (rank + 1) % n));
  Values got;
  for (int rank = 0; rank < n; ++rank) {
    const Tensor y = co_await issued[static_cast<std::size_t>(rank)];
    if ((rank + 1) % n == world.rank()) got = y.to_vector();
  }
  co_return got;
}
void expect_of_the_one_before(World& world, const Values& got, double scale) {
  const int before = (world.rank() + world.size() - 1) % world.size();
  EXPECT_EQ(got, counting(world, {64}, DType::F64, scale * (before + 1)).to_vector());
}
Task<void> one_ring(World& world) {
  Task<Values> ring = around_the_ring(world, 1);
  const Values got = co_await std::move(ring);
  expect_of_the_one_before(world, got, 1);
}
TEST(TransferTo, ARingOfTransfersIsAwaitedAfterAllAreIssued) {
  for (const int ranks : {2, 3, 5}) on_ranks(ranks, one_ring);
}

Task<void> rings_in_branches(World& world) {
  double total = 0;
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<Values> one = around_the_ring(world, 1), ten = around_the_ring(world, 10);
  Task<void> sum = await_sum(world, all, 1, total);
  Task<std::tuple<Values, std::monostate, Values>> both =
      when_all(std::move(one), std::move(sum), std::move(ten));
  const std::tuple<Values, std::monostate, Values> got = co_await std::move(both);
  expect_of_the_one_before(world, std::get<0>(got), 1);
  expect_of_the_one_before(world, std::get<2>(got), 10);
  EXPECT_EQ(total, world.size());
}
TEST(TransferTo, RingsInBranchesBesideACollectiveKeepTheirOrder) {
  for (const int ranks : {2, 3, 4}) on_ranks(ranks, rings_in_branches);
}

// --- structure ---

Task<void> transfer_then_sum(World& world, double& total) {
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  const Redistribution issued = transfer(of_rank(world, {3}), 0, 1);
  const Tensor y = co_await issued;
  Task<void> after = await_sum(world, all, 1, total);
  co_await std::move(after);
}
Task<void> beside_a_sum(World& world) {
  double one = 0, hundred = 0;
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<void> first = transfer_then_sum(world, one);
  Task<void> second = await_sum(world, all, 100, hundred);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
  EXPECT_EQ(one, world.size());
  EXPECT_EQ(hundred, 100 * world.size());
}
TEST(TransferTo, ARankThatDoesNothingSuspendsLikeTheOthers) { on_ranks(4, beside_a_sum); }

Task<void> goes_backward_beside_a_sum(World& world, double& total) {
  Tensor x = of_rank(world, {3});
  x.set_requires_grad(true);
  const Tensor y = mul(x, 2), z = transfer(y, 2, 0).tensor();
  const Tensor loss = sum(mul(z, z));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<void> after = await_sum(world, all, 1, total);
  co_await std::move(after);
}
Task<void> backward_in_a_branch(World& world) {
  double one = 0, hundred = 0;
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  Task<void> first = goes_backward_beside_a_sum(world, one);
  Task<void> second = await_sum(world, all, 100, hundred);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
  EXPECT_EQ(one, world.size());
  EXPECT_EQ(hundred, 100 * world.size());
}
TEST(TransferTo, ItsBackwardSuspendsAlikeOnAllRanks) { on_ranks(4, backward_in_a_branch); }

// --- gradients ---

// loss of rank r = sum of (r+1) * y²: the gradient of y is 2 (r+1) y.
Task<void> gradient_goes_back(World& world) {
  Tensor x = of_rank(world, {4});
  const Values own = x.to_vector(), base = counting(world, {4}).to_vector();
  x.set_requires_grad(true);
  const Redistribution issued = transfer(x, 1, 0);
  const Tensor y = co_await issued;
  const Tensor loss = sum(mul(mul(y, y), world.rank() + 1));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  const Values got = x.grad().to_vector();
  // Rank 1's x, 2 * base, is y on ranks 0 and 1.
  if (world.rank() == 0) {
    EXPECT_EQ(got, times(base, 0));
  } else if (world.rank() == 1) {
    EXPECT_EQ(got, times(base, 2 * 2 + 2 * 2 * 2));
  } else {
    EXPECT_EQ(got, times(own, 2 * 3));
  }
}
TEST(TransferTo, TheGradientOfTheTargetIsAddedToThatOfTheSource) {
  on_ranks(3, gradient_goes_back);
}

// d/dx of sum(g²), g the gradient of sum(y³): twice through the transfer.
Task<void> gradient_of_gradient(World& world) {
  Tensor x = of_rank(world, {2});
  x.set_requires_grad(true);
  const Tensor y = transfer(x, 0, 1).tensor();
  const Tensor cubes = sum(mul(mul(y, y), y));
  Task<void> walk = backward(cubes, BackwardOptions{.create_graph = true});
  co_await std::move(walk);
  const Tensor g = x.grad();
  x.set_grad({});
  const Tensor squares = sum(mul(g, g));
  Task<void> again = backward(squares);
  co_await std::move(again);
  // Rank 0: g = 3x² twice, and rank 1's squares see nothing of it: d(6x²)²/dx = 144 x³.
  const Values want = world.rank() == 0 ? Values{144 * 1, 144 * 8} : Values{0, 0};
  EXPECT_EQ(x.grad().to_vector(), want);
  x.set_grad({});
}
TEST(TransferTo, IsDifferentiableTwice) { on_ranks(2, gradient_of_gradient); }

Task<void> changed_in_place(World& world) {
  Tensor x = of_rank(world, {3});
  x.set_requires_grad(true);
  Tensor y = mul(x, 2);
  const Tensor z = transfer(y, 0, 1).tensor();
  const Tensor loss = sum(mul(z, z));
  {
    const NoGradGuard quiet;
    add_(y, y);
  }
  bool refused = false;
  try {
    Task<void> walk = backward(loss);
    co_await std::move(walk);
  } catch (const Error& error) {
    refused = error.kind() == ErrorKind::BadInput;
  }
  EXPECT_TRUE(refused);
}
TEST(TransferTo, AnInPlaceChangeOfSharedMemoryIsSeenByTheTape) {
  ends_of(quick_options(2), [](World& world) -> Task<void> {
    if (world.rank() == 0) return changed_in_place(world);
    return [](World& peer) -> Task<void> {
      const Redistribution issued = transfer(of_rank(peer, {3}), 0, 1);
      co_await issued;
    }(world);
  });
}

// --- errors ---

Task<void> what_has_no_meaning(World& world) {
  const Tensor x = of_rank(world, {3});
  const DeviceMesh all = init_device_mesh(world, {world.size()}, {"all"});
  EXPECT_THROW(transfer(x, 0, 2), Error);
  EXPECT_THROW(transfer(x, -1, 0), Error);
  EXPECT_THROW(transfer(Tensor(), 0, 1), Error);
  EXPECT_THROW(transfer(distribute_tensor(x, all, Shard(0), std::nullopt), 0, 1), Error);
  try {
    transfer(x, 0, 7);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "transfer: rank 7 is out of range for 2 ranks");
  }
  co_return;
}
TEST(TransferTo, WhatHasNoMeaningIsRefused) { on_ranks(2, what_has_no_meaning); }

Task<void> other_shapes(World& world) {
  const Redistribution issued = transfer(of_rank(world, {3 + world.rank()}), 0, 1);
  co_await issued;
}
TEST(TransferTo, OtherShapesAreAnErrorOnBothRanksThatNamesTheLine) {
  for (const End& end : ends_of(quick_options(2), other_shapes)) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("transfer_to_test.cpp:")) << end;
  }
}

}  // namespace
}  // namespace coshard::transfer_to
