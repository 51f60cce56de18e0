// The search over schedules, on ops whose schedules can be counted by hand.
#include "tests/support/fake_cuda/fake_schedules.h"

#include <gtest/gtest.h>

namespace coshard::testing {
namespace {

using Queued = FakeDriver::Queued;
using Found = FakeSchedules::Found;

// A part of collective `id` between two devices.
Queued part_of(std::uint64_t id, int device, int stream) {
  Queued op;
  op.device = device;
  op.stream = stream;
  op.kernel = true;
  op.meetings = {{id, 2}};
  return op;
}

// Collectives 1 and 2 on devices 0 and 1, each on a stream of its own.
std::vector<Queued> two_collectives() {
  return {part_of(1, 0, 1), part_of(2, 0, 2), part_of(1, 1, 1), part_of(2, 1, 2)};
}

TEST(Schedules, OneCollectiveBeginsAndEndsInFourOrders) {
  const std::vector<Queued> ops = {part_of(1, 0, 1), part_of(1, 1, 1)};
  const Found found = FakeSchedules::search_all(ops, 4, 1);
  EXPECT_EQ(found.schedules, 4U);
  EXPECT_EQ(found.states, 7U);
  EXPECT_EQ(found.hangs, 0U);
}

TEST(Schedules, APartWithoutItsPeerHangs) {
  const Found found = FakeSchedules::search_all({part_of(1, 0, 1)}, 1, 1);
  EXPECT_EQ(found.schedules, 1U);
  EXPECT_EQ(found.hangs, 1U);
  EXPECT_EQ(found.example, "0 begins A");
}

// The devices fill their only places with different ones: two ways, in either order.
TEST(Schedules, TwoCollectivesAndOnePlaceHang) {
  const FakeSchedules::Places apart = {{{0, 1}, 0}, {{0, 2}, 1}, {{1, 1}, 0}, {{1, 2}, 1}};
  const std::vector<Queued> ops = two_collectives();
  const Found found = FakeSchedules(ops, apart, 1).search();
  EXPECT_EQ(found.hangs, 4U);
  EXPECT_EQ(found.example, "0 begins A, 1 begins B");
  EXPECT_EQ(FakeSchedules(ops, apart, 2).search().hangs, 0U);
}

TEST(Schedules, OneQueueKeepsTheOrderOfTheHost) {
  const std::vector<Queued> ops = two_collectives();
  EXPECT_EQ(FakeSchedules::search_all(ops, 1, 1).hangs, 0U);
  // Both devices with two queues hang in four schedules, one device in two, and the other in two.
  EXPECT_EQ(FakeSchedules::search_all(ops, 2, 1).hangs, 8U);
}

// Device 1 runs collective 2, then 1, on one stream; device 0 has a wait for 1 before 2.
TEST(Schedules, AWaitAtTheHeadBlocksItsQueue) {
  Queued waits;
  waits.stream = 3;
  waits.after = {0};
  const std::vector<Queued> ops = {part_of(1, 0, 1), waits, part_of(2, 0, 2), part_of(2, 1, 1),
                                   part_of(1, 1, 1)};
  FakeSchedules::Places places = {{{0, 1}, 0}, {{0, 3}, 1}, {{0, 2}, 1}, {{1, 1}, 0}};
  const Found found = FakeSchedules(ops, places, 2).search();
  EXPECT_EQ(found.hangs, 2U);
  EXPECT_EQ(found.schedules, 2U);
  places[{0, 3}] = 2;
  EXPECT_EQ(FakeSchedules(ops, places, 2).search().hangs, 0U);
}

TEST(Schedules, ALaunchEventIsOverOnceTheKernelBegins) {
  for (const bool launch : {false, true}) {
    std::vector<Queued> ops = two_collectives();
    (launch ? ops[1].after_launch : ops[1].after) = {0};
    (launch ? ops[3].after_launch : ops[3].after) = {2};
    const Found one = FakeSchedules::search_all(ops, 2, 1),
                two = FakeSchedules::search_all(ops, 2, 2);
    EXPECT_EQ(one.hangs, 0U);
    EXPECT_EQ(two.hangs, 0U);
    EXPECT_EQ(two.schedules > one.schedules, launch);  // they overlap
  }
}

TEST(Schedules, AKernelWaitsForAPlace) {
  Queued kernel;  // collective 1 on device 1 comes after it
  kernel.device = 1;
  kernel.stream = 3;
  kernel.kernel = true;
  std::vector<Queued> ops = {part_of(1, 0, 1), kernel, part_of(1, 1, 1), part_of(2, 1, 2),
                             part_of(2, 0, 1)};
  ops[2].after = {1};
  EXPECT_GT(FakeSchedules::search_all(ops, 4, 1).hangs, 0U);
  EXPECT_EQ(FakeSchedules::search_all(ops, 4, 2).hangs, 0U);
}

}  // namespace
}  // namespace coshard::testing
