#include "runtime/launch/simulated_mpi.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace coshard {
namespace {

// The cookies that are over, until `polls` of this process brought nothing.
std::vector<std::uint64_t> over(const MpiApi& api, int polls) {
  std::vector<std::uint64_t> all;
  for (int i = 0; i < polls; ++i) {
    const MpiDone* done = nullptr;
    int count = 0;
    EXPECT_EQ(api.poll(&done, &count), nullptr);
    for (int j = 0; j < count; ++j) all.push_back(done[j].cookie);
  }
  return all;
}

TEST(SimulatedMpi, KeepsTheOrderOfEqualTagsHoweverLateMessagesAre) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimulatedMpi network({.processes = 2, .seed = seed, .slowest = 20});
    const MpiApi &zero = network.api(0), &one = network.api(1);
    std::vector<int> sent(10), received(10, -1);
    for (int i = 0; i < 10; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sent[at] = i;
      EXPECT_EQ(zero.send(&sent[at], sizeof(int), 1, 5, at), nullptr);
      EXPECT_EQ(one.receive(&received[at], sizeof(int), 0, 5, at), nullptr);
    }
    EXPECT_EQ(over(one, 500).size(), 10U);
    EXPECT_EQ(received, sent);
    EXPECT_EQ(network.unmatched(), 0U);
    EXPECT_EQ(network.sent(0).messages, 10);
    EXPECT_EQ(network.sent(0).bytes, 40);
    EXPECT_EQ(network.sent(1).messages, 0);
  }
}

TEST(SimulatedMpi, ALongMessageIsOverForItsSenderOnceItIsReceived) {
  SimulatedMpi network({.processes = 2, .seed = 3, .slowest = 4});
  const MpiApi &zero = network.api(0), &one = network.api(1);
  const std::vector<char> sent(5000, 'x');
  std::vector<char> received(5000);
  EXPECT_EQ(zero.send(sent.data(), sent.size(), 1, 2, 7), nullptr);
  EXPECT_TRUE(over(zero, 100).empty());
  EXPECT_EQ(one.receive(received.data(), received.size(), 0, 2, 8), nullptr);
  (void)over(one, 50);
  EXPECT_EQ(over(zero, 50), std::vector<std::uint64_t>{7});
  (void)over(one, 50);
  EXPECT_EQ(received, sent);
}

TEST(SimulatedMpi, WhatIsLostNeverArrivesNorWhatFollowsIt) {
  SimulatedMpi network({.processes = 2, .seed = 3, .lost = 1});
  const MpiApi &zero = network.api(0), &one = network.api(1);
  int value = 1, got = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(zero.send(&value, sizeof value, 1, 5, i), nullptr);
    EXPECT_EQ(one.receive(&got, sizeof got, 0, 5, i), nullptr);
  }
  EXPECT_EQ(over(zero, 10).size(), 3U);
  EXPECT_TRUE(over(one, 100).empty());
  EXPECT_EQ(got, 0);
}

TEST(SimulatedMpi, ADeadProcessSendsAndReceivesNothing) {
  SimulatedMpi network({.processes = 2, .seed = 3});
  const MpiApi &zero = network.api(0), &one = network.api(1);
  network.kill(1);
  EXPECT_TRUE(network.dead(1));
  int value = 1, got = 0;
  EXPECT_EQ(one.send(&value, sizeof value, 0, 5, 1), nullptr);
  EXPECT_EQ(zero.receive(&got, sizeof got, 1, 5, 1), nullptr);
  EXPECT_TRUE(over(zero, 100).empty());
  EXPECT_TRUE(over(one, 100).empty());
}

}  // namespace
}  // namespace coshard
