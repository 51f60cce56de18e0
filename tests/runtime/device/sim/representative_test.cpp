#include "runtime/device/sim/representative.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

const LinkOf kOneLink = [](const std::string&, const std::vector<int>&) {
  return LinkModel{"link", {{0, 0, 1e9}}};
};

TEST(Representative, OneRankOfManyRunsAndItsPeersAreThere) {
  const auto device = std::make_shared<VirtualDevice>(ProcessorModel());
  int runs = 0;
  run_representative(4096, device, kOneLink, [&](World& world) -> Task<void> {
    ++runs;
    EXPECT_EQ(world.rank(), 0);
    EXPECT_EQ(world.size(), 4096);
    EXPECT_EQ(world.device()->kind().name(), "sim");
    Collective sum;
    sum.kind = CollectiveKind::AllReduce;
    sum.extent = 4096;
    sum.keep_send = sum.keep_recv = world.device()->make_buffer(4 * 4096);
    sum.send = sum.recv = sum.keep_recv->data();
    const Work work = world.communicator()->issue(std::move(sum));
    co_await work;
  });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(device->compute_stream().now, 2 * 4 * 4095);
}

TEST(Representative, WhatItsProgramThrowsIsThrown) {
  const auto device = std::make_shared<VirtualDevice>(ProcessorModel());
  const Program reads = [](World& world) -> Task<void> {
    double value = 0;
    world.device()->download(&value, nullptr, sizeof value);
    co_return;
  };
  EXPECT_THROW(run_representative(2, device, kOneLink, reads), Error);
  EXPECT_THROW(run_representative(0, device, kOneLink, reads), Error);
  EXPECT_THROW(run_representative(2, device, kOneLink, nullptr), Error);
}

}  // namespace
}  // namespace coshard
