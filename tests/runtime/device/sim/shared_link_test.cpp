#include "runtime/device/sim/shared_link.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

const int kA = 0, kB = 0;  // two queues

TEST(SharedLink, ATransferAloneTakesItsLatencyAndItsTime) {
  SharedLink link;
  const auto a = link.add(&kA, 100, {20, 300});
  EXPECT_EQ(link.wait_for(*a, 0), 420);
}

TEST(SharedLink, TransfersOfOneQueueFollowEachOther) {
  SharedLink link;
  const auto a = link.add(&kA, 0, {10, 100});
  const auto b = link.add(&kA, 50, {10, 100});
  EXPECT_EQ(link.wait_for(*b, 0), 220);
  EXPECT_EQ(link.wait_for(*a, 0), 110);
}

TEST(SharedLink, TwoQueuesShareTheRate) {
  SharedLink link;
  const auto a = link.add(&kA, 0, {0, 100});
  const auto b = link.add(&kB, 40, {0, 100});
  EXPECT_EQ(link.wait_for(*a, 0), 160);  // 40 alone, then 60 at half the rate
  EXPECT_EQ(link.wait_for(*b, 0), 200);
}

TEST(SharedLink, LatencyDoesNotUseTheLink) {
  SharedLink link;
  const auto a = link.add(&kA, 0, {0, 100});
  const auto b = link.add(&kB, 0, {100, 10});
  EXPECT_EQ(link.wait_for(*a, 0), 100);
  EXPECT_EQ(link.wait_for(*b, 0), 110);
}

TEST(SharedLink, PartsArriveEvenlyAndTheFirstAtOnce) {
  SharedLink link;
  const auto a = link.add(&kA, 10, {6, 300}, 4);
  EXPECT_EQ(link.wait_for(*a, 0), 10);
  EXPECT_EQ(link.wait_for(*a, 1), 116);
  const auto b = link.add(&kB, 116, {0, 1000});  // from now on at half the rate
  EXPECT_EQ(link.wait_for(*a, 2), 316);
  EXPECT_EQ(link.wait_for(*a, 3), 516);
  EXPECT_EQ(link.wait_for(*b, 0), 1316);
}

TEST(SharedLink, WhatIsOverByNowIsKnownAndTheRestStaysOpen) {
  SharedLink link;
  const auto a = link.add(&kA, 0, {0, 100});
  link.advance(99);
  EXPECT_FALSE(a->arrived(0));
  const auto b = link.add(&kB, 99, {0, 100});
  link.advance(150);
  ASSERT_TRUE(a->arrived(0));
  EXPECT_EQ(a->arrivals[0], 101);
  EXPECT_FALSE(b->arrived(0));
}

TEST(SharedLink, NothingTakesNoTime) {
  SharedLink link;
  const auto a = link.add(&kA, 7, {0, 0}, 3);
  EXPECT_EQ(link.wait_for(*a, 2), 7);
}

}  // namespace
}  // namespace coshard
