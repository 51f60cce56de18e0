// A deadline ends its work in time whatever tensor in flight the work awaits: in virtual time to
// the millisecond, and on threads with what a busy machine adds. The ranks then go on.
#include <array>
#include <optional>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/long_awaits.h"
#include "tests/support/ranks.h"

namespace coshard::deadlines {
namespace {
using testing::bound_behind_a_sibling;
using testing::bound_then_go_on;
using testing::counting;
using testing::hour_long_collectives;
using testing::LongAwait;
using testing::run_all_bounded;
using testing::simulate_bounded;
using testing::term;

constexpr int kRanks = 4;
DeviceMesh line(World& world) { return init_device_mesh(world, {kRanks}, {"all"}); }
DeviceMesh square(World& world) { return init_device_mesh(world, {2, 2}, {"dp", "tp"}); }
// Without rank 3.
DeviceMesh three(World& world) { return DeviceMesh::from_ranks(world, {0, 1, 2}, {3}, {"three"}); }
DTensor rows(World& world, const DeviceMesh& mesh) {
  return distribute_tensor(counting(world, {8, 4}), mesh, Shard(0), std::nullopt);
}

Task<void> a_redistribution(World& world) {
  const Redistribution issued = term(world, line(world), 1).redistribute(Replicate());
  co_await issued;
}
Task<void> its_host(World& world) {
  const Redistribution issued = rows(world, line(world)).redistribute(Replicate());
  co_await issued.host();
}
Task<void> its_shards(World& world) {
  Redistribution issued = rows(world, line(world)).redistribute(Replicate());
  for (;;) {  // its own is there at once
    const std::optional<ArrivedShard> part = co_await issued.next_shard();
    if (!part) break;
  }
}
Task<void> one_of_several_steps(World& world) {
  const Tensor terms = counting(world, {8, 8});
  const DTensor x = from_local(terms, square(world), Layout(Partial(Reduce::Max), Shard(0)));
  const Redistribution issued = x.redistribute(Replicate(), Replicate());
  co_await issued;
}
Task<void> one_of_a_chain(World& world) {
  const Tensor whole = counting(world, {8, 8});
  const DTensor x =
      distribute_tensor(whole, square(world), Layout(Shard(0), Shard(1)), std::nullopt);
  const Redistribution first = x.redistribute(Shard(1), Shard(0));
  const Redistribution second = first.tensor().redistribute(Shard(0), Replicate());
  const Redistribution third = second.tensor().redistribute(Replicate(), Replicate());
  co_await third;
}
Task<void> a_cast_of_one_in_flight(World& world) {
  const Redistribution whole = rows(world, line(world)).redistribute(Replicate());
  RedistributeOptions casts;
  casts.forward_dtype = DType::F32;
  const Redistribution slice = redistribute(whole.tensor(), Layout{Shard(1)}, casts);
  co_await slice;
}
Task<void> a_deferred_one(World& world) {
  const DTensor x = term(world, line(world), 1);
  std::optional<Redistribution> later;
  {
    const DeferRedistributes deferring;
    later.emplace(x.redistribute(Replicate()));
  }
  co_await *later;
}
Task<void> a_copy_that_a_sibling_awaits_too(World& world) {
  const Redistribution issued = rows(world, line(world)).redistribute(Replicate());
  const auto awaits = [](Redistribution copy) -> Task<void> { co_await copy; };
  Task<void> one = awaits(issued), other = awaits(issued);
  Task<void> both = when_all(std::move(one), std::move(other));
  co_await std::move(both);
}
// Rank 3 suspends on nothing, again and again.
Task<void> ones_that_a_rank_is_outside_of(World& world) {
  const DeviceMesh mesh = three(world);
  for (;;) {
    const Redistribution issued = rows(world, mesh).redistribute(Replicate());
    co_await issued;
  }
}
Task<void> a_transfer(World& world) {
  const DeviceMesh other = DeviceMesh::from_ranks(world, {3, 0}, {2}, {"other"});
  const Redistribution issued = redistribute(rows(world, three(world)), other, Layout(Shard(1)));
  co_await issued;
}
Task<void> a_transfer_of_terms(World& world) {
  const DeviceMesh other = DeviceMesh::from_ranks(world, {3, 0}, {2}, {"other"});
  const DTensor terms = term(world, three(world), 1);
  const Redistribution issued = redistribute(terms, other, Layout(Replicate()));
  co_await issued;
}
Task<void> several_tensors(World& world) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 3; ++i)
    tensors.push_back(term(world, line(world), i).redistribute(Replicate()).tensor());
  Task<void> arrived = arrival_of(tensors);
  co_await std::move(arrived);
}
// The gradient of what was sharded for nothing is an all_gather.
Task<void> a_backward(World& world) {
  const Tensor value = counting(world, {8, 4});
  DTensor x = distribute_tensor(value, line(world), Replicate(), std::nullopt);
  x.set_requires_grad(true);
  const DTensor cut = mul(x, 2).redistribute(Shard(0)).tensor();
  const DTensor loss = sum(mul(cut, rows(world, line(world))));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
}
Task<void> gradients(World& world) {
  const Tensor value = counting(world, {4});
  DTensor w = distribute_tensor(value, line(world), Replicate(), std::nullopt);
  w.set_requires_grad(true);
  w.set_grad(from_local(value, line(world), Partial()));
  Task<void> reduced = reduce_gradients({w});
  co_await std::move(reduced);
}

// What is deferred is issued when the executor looks at it. It stands before all others, so that
// this does not hang on the time between their deadlines.
constexpr std::array kTensors{
    LongAwait{"ADeferredOne", a_deferred_one},
    LongAwait{"ARedistribution", a_redistribution},
    LongAwait{"ItsHost", its_host},
    LongAwait{"ItsShards", its_shards},
    LongAwait{"OneOfSeveralSteps", one_of_several_steps},
    LongAwait{"OneOfAChain", one_of_a_chain},
    LongAwait{"ACastOfOneInFlight", a_cast_of_one_in_flight},
    LongAwait{"ACopyThatASiblingAwaitsToo", a_copy_that_a_sibling_awaits_too},
    LongAwait{"OnesThatARankIsOutsideOf", ones_that_a_rank_is_outside_of},
    LongAwait{"ATransfer", a_transfer},
    LongAwait{"ATransferOfTerms", a_transfer_of_terms},
    LongAwait{"SeveralTensors", several_tensors},
    LongAwait{"ABackward", a_backward},
    LongAwait{"Gradients", gradients},
};

class OfATensor : public ::testing::TestWithParam<LongAwait> {};
TEST_P(OfATensor, ADeadlineEndsTheAwaitInTimeAndTheRanksGoOn) {
  simulate_bounded(kRanks, bound_then_go_on, GetParam());
}
TEST_P(OfATensor, ADeadlineEndsTheAwaitBehindASiblingToo) {
  simulate_bounded(kRanks, bound_behind_a_sibling, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Deadlines, OfATensor, ::testing::ValuesIn(kTensors), testing::name_of);

TEST(Deadlines, EndAllTensorsAtOnceOnThreads) {
  run_all_bounded(hour_long_collectives(kRanks), kTensors);
}
TEST(Deadlines, EndAllTensorsAtOnceOnThreadsWhoseDataAThreadMoves) {
  WorldOptions options = hour_long_collectives(kRanks);
  options.progress_threads = 1;
  run_all_bounded(options, kTensors);
}
TEST(Deadlines, EndAllTensorsAtOnceOnFibers) {
  WorldOptions options = hour_long_collectives(kRanks);
  options.rank_threads = 2;
  run_all_bounded(options, kTensors);
}

}  // namespace
}  // namespace coshard::deadlines
