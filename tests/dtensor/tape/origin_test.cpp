// Tensors of equal shape that one rank swaps are told, whatever they are used for; programs that
// are the same but for what one rank does beside stay legal.
#include "dtensor/tape/origin.h"

#include <gtest/gtest.h>

#include <functional>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::origin {
namespace {

using testing::End;
using testing::ends_of;
using testing::quick_options;
using Body = std::function<Task<void>(World& world, DeviceMesh mesh, bool swaps)>;

// The ends of two ranks, the second of which swaps or not.
std::vector<End> ends_of_two(const Body& body, bool swaps) {
  return ends_of(quick_options(2), [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"m"});
    Task<void> program = body(world, mesh, swaps && world.rank() == 1);
    co_await std::move(program);
  });
}

void expect_only_a_swap_is_told(const Body& body) {
  for (const End& end : ends_of_two(body, false)) EXPECT_FALSE(end.failed) << end;
  for (const End& end : ends_of_two(body, true)) EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
}

DTensor leaf_with_partial(const DeviceMesh& mesh, double gradient) {
  DTensor p = zeros(mesh, Replicate(), {4}, DType::F64, true);
  p.set_grad(from_local(full({4}, gradient, DType::F64), mesh, Partial()));
  return p;
}

std::vector<Tensor> in_order(Tensor a, Tensor b, bool swaps) {
  if (swaps) std::swap(a, b);
  return {a, b};
}

Task<void> gathers(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = ones(mesh, Shard(0), {4}), b = zeros(mesh, Shard(0), {4});
  for (const Tensor& each : in_order(a, b, swaps)) static_cast<void>(each.full_tensor());
  co_return;
}

Task<void> gathers_results(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = ones(mesh, Shard(0), {4}), b = zeros(mesh, Shard(0), {4});
  const auto twice = [](const Tensor& x) { return add(x, x); };
  const std::vector<Tensor> made = in_order(a, b, swaps);
  const Tensor one = twice(made[0]), other = twice(made[1]);
  static_cast<void>(one.full_tensor());
  static_cast<void>(other.full_tensor());
  co_return;
}

Task<void> reduces_a_list(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = leaf_with_partial(mesh, 1), b = leaf_with_partial(mesh, 10);
  Task<void> reduced = reduce_gradients(in_order(a, b, swaps));
  co_await std::move(reduced);
}

Task<void> reduces_a_list_of_results(World&, DeviceMesh mesh, bool swaps) {
  std::vector<Tensor> made;
  for (const double value : {1, 10}) {
    Tensor p = mul(ones(mesh, Replicate(), {4}, DType::F64), value).set_requires_grad(true);
    p.set_grad(from_local(full({4}, value, DType::F64), mesh, Partial()));
    made.push_back(p);
  }
  Task<void> reduced = reduce_gradients(in_order(made[0], made[1], swaps));
  co_await std::move(reduced);
}

Task<void> reduces_lists_of_one(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = leaf_with_partial(mesh, 1), b = leaf_with_partial(mesh, 10);
  for (const Tensor& each : in_order(a, b, swaps)) {
    Task<void> reduced = reduce_gradients({each});
    co_await std::move(reduced);
  }
}

Task<void> steps_with_a_list(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = leaf_with_partial(mesh, 1), b = leaf_with_partial(mesh, 10);
  SGD optimizer(in_order(a, b, swaps), {.lr = 1});
  Task<void> step = optimizer.step();
  co_await std::move(step);
}

Task<void> clips_a_list(World&, DeviceMesh mesh, bool swaps) {
  const DTensor a = leaf_with_partial(mesh, 1), b = leaf_with_partial(mesh, 10);
  Task<Tensor> norm = clip_grad_norm(in_order(a, b, swaps), 1e9);
  co_await std::move(norm);
}

Tensor plain_leaf(double gradient) {
  Tensor p = zeros({4}, DType::F64, true);
  p.set_grad(full({4}, gradient, DType::F64));
  return p;
}

Task<void> all_reduces_a_list(World&, DeviceMesh mesh, bool swaps) {
  const Tensor a = plain_leaf(1), b = plain_leaf(10);
  all_reduce_gradients(in_order(a, b, swaps), mesh, 0);
  Task<void> arrived = arrival_of({a.grad(), b.grad()});
  co_await std::move(arrived);
}

// Of a column-parallel product: in backward the gradient of its input is summed over the ranks.
DTensor product(const DTensor& x, const DTensor& w) { return sum(matmul(x, w)); }

Task<void> walks_back_twice(World&, DeviceMesh mesh, bool swaps) {
  DTensor x = ones(mesh, Shard(0), {2, 4}, DType::F64, true);
  DTensor y = zeros(mesh, Shard(0), {2, 4}, DType::F64, true);
  const DTensor w = ones(mesh, Shard(1), {4, 6}, DType::F64);
  const Tensor one = product(x.redistribute(Replicate()).tensor(), w);
  const Tensor other = product(y.redistribute(Replicate()).tensor(), w);
  for (const Tensor& loss : in_order(one, other, swaps)) {
    Task<void> walk = backward(loss);
    co_await std::move(walk);
  }
  Task<void> arrived = arrival_of({x.grad(), y.grad()});
  co_await std::move(arrived);
}

Task<void> walks_back_through_swapped_blocks(World&, DeviceMesh mesh, bool swaps) {
  DTensor x = ones(mesh, Shard(0), {2, 4}, DType::F64, true);
  DTensor y = zeros(mesh, Shard(0), {2, 4}, DType::F64, true);
  const std::vector<Tensor> inputs = in_order(x, y, swaps);
  const Tensor one = sum(mul(inputs[0], 2).redistribute(Replicate()).tensor());
  const Tensor other = sum(mul(inputs[1], 2).redistribute(Replicate()).tensor());
  Task<void> walk = backward(one + other);
  co_await std::move(walk);
}

TEST(Origin, OfAResultIsTheSameInWhateverOrderItsInputsCome) {
  run_ranks(quick_options(1), [](World&) -> Task<void> {
    Tensor a = ones({1}), b = ones({1}), c = ones({1});
    const Tensor unknown = ones({1});
    a.set_origin(12), b.set_origin(5), c.set_origin(9);
    const auto of = [](const std::vector<Tensor>& in) { return origin_of_result(in); };
    EXPECT_EQ(of({}), 0U);
    EXPECT_EQ(of({unknown, Tensor()}), 0U);
    EXPECT_EQ(of({a, unknown, a}), 12U);
    EXPECT_EQ(of({a, b}), of({b, Tensor(), a, b, unknown}));
    EXPECT_EQ(of({a, b, c}), of({c, a, c, b, a}));
    EXPECT_NE(of({a, b}), of({a, c}));
    EXPECT_NE(of({a, b}), of({a, b, c}));
    co_return;
  });
}

TEST(Origin, OfGathersThatOneRankSwaps) { expect_only_a_swap_is_told(gathers); }
TEST(Origin, OfGatheredResultsThatOneRankSwaps) { expect_only_a_swap_is_told(gathers_results); }
TEST(Origin, OfListsThatReduceGradientsGets) { expect_only_a_swap_is_told(reduces_a_list); }
TEST(Origin, OfListsOfWhatOperatorsMade) { expect_only_a_swap_is_told(reduces_a_list_of_results); }
TEST(Origin, OfListsOfOneThatOneRankSwaps) { expect_only_a_swap_is_told(reduces_lists_of_one); }
TEST(Origin, OfListsThatAnOptimizerGets) { expect_only_a_swap_is_told(steps_with_a_list); }
TEST(Origin, OfListsThatClippingGets) { expect_only_a_swap_is_told(clips_a_list); }
TEST(Origin, OfListsThatAllReduceGradientsGets) { expect_only_a_swap_is_told(all_reduces_a_list); }
TEST(Origin, OfTwoBackwards) { expect_only_a_swap_is_told(walks_back_twice); }
TEST(Origin, OfBlocksInOneBackward) {
  expect_only_a_swap_is_told(walks_back_through_swapped_blocks);
}

// --- what stays legal ---

void expect_legal(const Body& body) {
  for (const End& end : ends_of_two(body, true)) EXPECT_FALSE(end.failed) << end;
}

// A DataParallel sums by its list, whatever the order in which a rank's backward completes it.
Task<void> sums_in_parallel(World&, DeviceMesh mesh, std::vector<Tensor> list, bool swaps) {
  const Tensor a = list[0], b = list[1];
  const DataParallel parallel(std::move(list), mesh, 0, {.reduce = Reduce::Sum});
  for (int step = 0; step < 2; ++step) {
    a.set_grad({});
    b.set_grad({});
    const Tensor one = sum(a * a), other = mul(sum(b), 10);
    Task<void> walk = backward(swaps ? other + one : one + other);
    co_await std::move(walk);
    Task<void> arrived = arrival_of({a.grad(), b.grad()});
    co_await std::move(arrived);
    EXPECT_EQ(a.grad().to_vector(), std::vector<double>(4, 4));
    EXPECT_EQ(b.grad().to_vector(), std::vector<double>(4, 20));
  }
}

TEST(Origin, ADataParallelMayCompleteInAnotherOrder) {
  expect_legal([](World& world, DeviceMesh mesh, bool swaps) {
    const Tensor a = ones({4}, DType::F64, true), b = ones({4}, DType::F64, true);
    return sums_in_parallel(world, mesh, {a, b}, swaps);
  });
}

TEST(Origin, OfAListThatADataParallelGets) {
  expect_only_a_swap_is_told([](World&, DeviceMesh mesh, bool swaps) -> Task<void> {
    const Tensor a = ones({4}, DType::F64, true), b = ones({4}, DType::F64, true);
    const DataParallel parallel(in_order(a, b, swaps), mesh, 0, {.reduce = Reduce::Sum});
    Task<void> walk = backward(sum(a) + mul(sum(b), 10));
    co_await std::move(walk);
    Task<void> arrived = arrival_of({a.grad(), b.grad()});
    co_await std::move(arrived);
  });
}

// Data that all ranks know to be the same, from two lines that they take in turn.
TEST(Origin, ANormMayBeTakenOnTwoLinesInTurn) {
  expect_legal([](World& world, DeviceMesh mesh, bool) -> Task<void> {
    const std::vector<Tensor> list{ones(mesh, Shard(0), {4}, DType::F64, true)};
    SGD optimizer(list, {.lr = 0.1});
    for (int step = 0; step < 6; ++step) {
      list[0].set_grad(ones(mesh, Shard(0), {4}, DType::F64));
      if (step % 2 == world.rank()) {
        Task<Tensor> clip = clip_grad_norm(list, 1);
        const Tensor norm = co_await std::move(clip);
        EXPECT_NEAR(norm.item(), 2, 1e-12);
        Task<void> one = optimizer.step();
        co_await std::move(one);
      } else {
        Task<Tensor> clip = clip_grad_norm(list, 1);
        static_cast<void>(co_await std::move(clip));
        Task<void> one = optimizer.step();
        co_await std::move(one);
      }
    }
  });
}

TEST(Origin, OneCallMayStandOnALineForEachRank) {
  expect_legal([](World&, DeviceMesh mesh, bool swaps) -> Task<void> {
    const DTensor a = ones(mesh, Shard(0), {4}), b = zeros(mesh, Shard(0), {4});
    for (int i = 0; i < 10; ++i) {
      if (swaps)
        static_cast<void>(a.full_tensor());
      else
        static_cast<void>(a.full_tensor());
      static_cast<void>(b.full_tensor());
    }
    co_return;
  });
}

// Also before and between the tensors that are used.
TEST(Origin, ARankMayMakeMoreTensorsThanItsPeers) {
  expect_legal([](World&, DeviceMesh mesh, bool more) -> Task<void> {
    std::vector<Tensor> all;
    for (int i = 0; i < 6; ++i) {
      if (more && i % 2 == 0) static_cast<void>(ones({4}));
      all.push_back(leaf_with_partial(mesh, i));
      if (more) static_cast<void>(add(all.back().detach(), all.back().detach()));
    }
    for (int step = 0; step < 3; ++step) {
      for (const Tensor& each : all)
        each.set_grad(from_local(ones({4}, DType::F64), mesh, Partial()));
      SGD optimizer(all, {.lr = 1});
      Task<void> moved = optimizer.step();
      co_await std::move(moved);
      if (more) static_cast<void>(ones(mesh, Shard(0), {4}));
      for (const Tensor& each : all)
        static_cast<void>(mul(each.detach(), 2).redistribute(Shard(0)));
      Task<void> reduced = reduce_gradients(all);
      co_await std::move(reduced);
    }
  });
}

TEST(Origin, ARankMayRunMoreOperatorsThanItsPeers) {
  expect_legal([](World&, DeviceMesh mesh, bool more) -> Task<void> {
    DTensor x = ones(mesh, Replicate(), {2, 4}, DType::F64, true);
    const DTensor w = ones(mesh, Shard(1), {4, 6}, DType::F64);
    for (int step = 0; step < 3; ++step) {
      Tensor in = more ? mul(x, 1) : x;
      if (more) in = add(in, 0);
      Task<void> walk = backward(product(in, w));
      co_await std::move(walk);
      Task<void> reduced = reduce_gradients({x});
      co_await std::move(reduced);
      EXPECT_EQ(x.grad().to_vector(), std::vector<double>(8, 6.0 * (step + 1)));
    }
  });
}

// Only the source's values count.
TEST(Origin, OtherRanksThanTheSourceMayPassAnotherTensor) {
  expect_legal([](World&, DeviceMesh mesh, bool other) -> Task<void> {
    const Tensor a = full({4}, 1, DType::F64), b = full({4}, 2, DType::F64);
    for (const Tensor& each : in_order(a, b, other)) {
      const DTensor sent = distribute_tensor(each, mesh, Shard(0));
      static_cast<void>(sent.full_tensor());
    }
    co_return;
  });
}

// As samplers and ring schedules do: another one of the rank's own tensors in each step.
TEST(Origin, RanksMayTakeTheirPartsFromOtherTensors) {
  expect_legal([](World& world, DeviceMesh mesh, bool) -> Task<void> {
    std::vector<Tensor> own;
    for (int i = 0; i < 4; ++i) own.push_back(full({2}, i, DType::F64));
    for (int step = 0; step < 8; ++step) {
      const Tensor& part = own[static_cast<std::size_t>((step + world.rank()) % 4)];
      EXPECT_EQ(from_local(part, mesh, Shard(0)).full_tensor().to_vector()[0], step % 4);
      const DTensor loss = from_local(sum(part), mesh, Partial(Reduce::Avg));
      static_cast<void>(loss.full_tensor());
    }
    co_return;
  });
}

// One rank after the other takes another path to the same.
TEST(Origin, RanksMayComputeTheSameInAnotherWay) {
  expect_legal([](World& world, DeviceMesh mesh, bool) -> Task<void> {
    const DTensor x = ones(mesh, Shard(0), {4}, DType::F64);
    for (int step = 0; step < 6; ++step) {
      DTensor y = x;
      if (step % 2 == world.rank()) y = mul(y, 1);
      static_cast<void>(y.full_tensor());
      if (step % 2 == world.rank())
        static_cast<void>(x.full_tensor());
      else
        static_cast<void>(x.full_tensor());
    }
    const Tensor w = full({4}, 2, DType::F64, true);
    const DataParallel parallel({w}, mesh, 0);
    for (int step = 0; step < 4; ++step) {
      w.set_grad({});
      Task<void> walk =
          step % 2 == world.rank() ? backward(mul(sum(w), 0)) : backward(mean(mul(w, w)));
      co_await std::move(walk);
      Task<void> arrived = arrival_of({w.grad()});
      co_await std::move(arrived);
    }
  });
}

// In a branch, a rank may make more than its peers.
TEST(Origin, ARankMayMakeMoreInABranch) {
  expect_legal([](World& world, DeviceMesh mesh, bool) -> Task<void> {
    for (int round = 0; round < 4; ++round) {
      std::vector<Task<void>> one;
      one.push_back([](World& world, DeviceMesh mesh, int round) -> Task<void> {
        if (round % 2 == world.rank()) static_cast<void>(ones(mesh, Shard(0), {4}));
        const DTensor x = ones(mesh, Shard(0), {4});
        static_cast<void>(x.full_tensor());
        co_return;
      }(world, mesh, round));
      Task<void> all = when_all(std::move(one));
      co_await std::move(all);
    }
  });
}

// Siblings that wait for what only a rank sees make their tensors in another order.
Task<Tensor> loaded(double value, int turns) {
  for (int i = 0; i < turns; ++i) co_await yield();
  co_return full({4}, value, DType::F64);
}

TEST(Origin, SiblingsMayMakeTensorsInAnotherOrder) {
  expect_legal([](World&, DeviceMesh mesh, bool other) -> Task<void> {
    for (int round = 0; round < 3; ++round) {
      std::vector<Task<Tensor>> both;
      both.push_back(loaded(1, other ? 3 : 1));
      both.push_back(loaded(2, other ? 1 : 3));
      Task<std::vector<Tensor>> loads = when_all(std::move(both));
      const std::vector<Tensor> made = co_await std::move(loads);
      for (std::size_t i = 0; i < made.size(); ++i)
        EXPECT_EQ(distribute_tensor(made[i], mesh, Shard(0)).full_tensor().to_vector(),
                  std::vector<double>(4, static_cast<double>(i + 1)));
    }
  });
}

}  // namespace
}  // namespace coshard::origin
