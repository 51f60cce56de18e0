// The call of redistribute returns at once, whatever the plan takes and whoever is late.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::issue_at_once {
namespace {
using namespace std::chrono_literals;
using testing::be_busy_until;
using testing::counting;
using testing::End;
using testing::ends_of;
using testing::quick_options;

constexpr std::chrono::milliseconds kLate = 1200ms;  // but no later than it need be

// What is called while rank 3 is late: on a mesh of 2 x 2, from a tensor [8,8] that is sharded in
// both dimensions; whole in the end. Of terms it is sharded in the second only.
using Call = Redistribution (*)(const DTensor& cut);

Redistribution in_two_steps(const DTensor& terms) {
  return terms.redistribute(Replicate(), Replicate());
}
Redistribution of_a_source_in_flight(const DTensor& cut) {
  const Redistribution first = cut.redistribute(Shard(0), Replicate());
  return first.tensor().redistribute(Replicate(), Replicate());
}
Redistribution with_casts(const DTensor& cut) {
  RedistributeOptions options;
  options.forward_dtype = DType::F32;
  const Redistribution first = redistribute(cut, Layout(Shard(0), Replicate()), options);
  options.forward_dtype = DType::F64;
  return redistribute(first.tensor(), Layout(Replicate(), Replicate()), options);
}
Redistribution there_and_back(const DTensor& cut) {
  const Redistribution first = cut.redistribute(Shard(1), Shard(0));
  const Redistribution second = first.tensor().redistribute(Shard(0), Shard(1));
  return second.tensor().redistribute(Replicate(), Replicate());
}

Task<void> call_beside_a_late_rank(World& world, Call call, Layout from, std::atomic<int>& called,
                                   int& called_before) {
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  const Tensor full = counting(world, {8, 8});
  const DTensor cut = distribute_tensor(full, mesh, from, std::nullopt);
  if (world.rank() == 3) {
    be_busy_until([&] { return called == 3; }, kLate);
    called_before = called;
  }
  const Redistribution issued = call(cut);
  ++called;
  const Tensor whole = co_await issued;
  EXPECT_EQ(whole.layout(), Layout(Replicate(), Replicate()));
  EXPECT_EQ(whole.to_vector(), full.to_vector());
}

void expect_the_call_does_not_wait(Call call, const Layout& from = Layout(Shard(0), Shard(1))) {
  std::atomic<int> called{0};
  int called_before = 0;
  WorldOptions options = quick_options(4);
  options.timeout = 10s;
  const std::vector<End> ends = ends_of(options, [&](World& world) {
    return call_beside_a_late_rank(world, call, from, called, called_before);
  });
  for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
  EXPECT_EQ(called_before, 3);
}

TEST(IssueAtOnce, InSeveralSteps) {
  expect_the_call_does_not_wait(in_two_steps, Layout(Partial(Reduce::Max), Shard(0)));
}
TEST(IssueAtOnce, OfASourceInFlight) { expect_the_call_does_not_wait(of_a_source_in_flight); }
TEST(IssueAtOnce, WithCastsOfASourceInFlight) { expect_the_call_does_not_wait(with_casts); }
TEST(IssueAtOnce, PackedAndUnpackedOnTheWay) { expect_the_call_does_not_wait(there_and_back); }

}  // namespace
}  // namespace coshard::issue_at_once
