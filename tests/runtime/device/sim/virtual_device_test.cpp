#include "runtime/device/sim/virtual_device.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "runtime/device/sim/limits.h"

namespace coshard {
namespace {

std::shared_ptr<VirtualDevice> device_of_rate(double bytes_per_second) {
  ProcessorModel model;
  model.memory_rate = bytes_per_second;
  return std::make_shared<VirtualDevice>(model);
}

KernelWork moving(double bytes) {
  KernelWork work;
  work.name = "Copy";
  work.bytes = bytes;
  return work;
}

TEST(VirtualDevice, KernelsFollowEachOtherOnTheComputeStream) {
  const auto device = device_of_rate(1e9);
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  device->on_kernel = [&](const KernelWork& work, std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(work.name, "Copy");
    told.emplace_back(begin, end);
  };
  device->run(moving(100));
  device->compute_stream().wait_until(150);
  device->run(moving(10));
  EXPECT_EQ(told, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 100}, {150, 160}}));
}

TEST(VirtualDevice, AStreamWaitsForAnEventOfAnother) {
  const auto device = device_of_rate(1e9);
  const auto other = device->make_stream(StreamKind::Communication);
  device->run(moving(70));
  other->wait(*device->compute_stream().record());
  EXPECT_EQ(static_cast<VirtualStream&>(*other).now, 70);
  device->compute_stream().wait(*other->record());
  EXPECT_EQ(device->compute_stream().now, 70);
}

TEST(VirtualDevice, MemoryIsCountedInBlocksOf512Bytes) {
  const auto device = device_of_rate(0);
  auto a = device->make_buffer(1000);
  const auto b = device->make_buffer(std::size_t{1} << 40);  // no machine has it
  EXPECT_NE(a->data(), b->data());
  EXPECT_EQ(device->memory().in_use, 1024 + (std::size_t{1} << 40));
  a = nullptr;
  EXPECT_EQ(device->memory().in_use, std::size_t{1} << 40);
  EXPECT_EQ(device->memory().peak, 1024 + (std::size_t{1} << 40));
  device->reset_peak();
  EXPECT_EQ(device->memory().peak, std::size_t{1} << 40);
}

TEST(VirtualDevice, MemoryThatATransferUsesIsReusedAfterIt) {
  const auto device = device_of_rate(1e9);
  const auto link = std::make_shared<SharedLink>();
  auto sent = device->make_buffer(512);
  sent->used_until(
      std::make_shared<VirtualEvent>(link.get(), link, link->add(link.get(), 0, {0, 100})));
  sent = nullptr;
  device->run(moving(99));
  auto next = device->make_buffer(512);
  EXPECT_EQ(device->memory().in_use, 1024U);
  device->run(moving(1));
  next = device->make_buffer(512);
  EXPECT_EQ(device->memory().in_use, 512U);
}

TEST(VirtualDevice, WhatTheHostReadsIsADeclaredStubOrAnError) {
  const auto device = device_of_rate(0);
  const auto data = device->make_buffer(16);
  double read[2] = {};
  try {
    device->download(read, data->data(), sizeof read);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("sim: the host reads 16 bytes"), std::string::npos);
  }
  {
    const VirtualDevice::Stub stub(*device, 2.5);
    device->download(read, data->data(), sizeof read);
  }
  EXPECT_EQ(read[0], 2.5);
  EXPECT_EQ(read[1], 2.5);
  EXPECT_EQ(device->host_waits(), 2U);
  EXPECT_THROW(device->download(read, data->data(), sizeof read), Error);
}

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST(VirtualDevice, AProgramThatTakesMoreThanItCanCountIsRefused) {
  const auto device = device_of_rate(1e9);
  device->run(moving(static_cast<double>(kLongestNs) - 1));
  EXPECT_EQ(refusal([&] { device->run(moving(2)); }),
            "sim: the program takes more than 1000000000000000 ns, 11 days: too much work, or too "
            "slow a processor or link");
  device->run(moving(1));
  EXPECT_EQ(device->compute_stream().now, kLongestNs);
  const auto half = device->make_buffer(kMostBytes / 2);
  EXPECT_EQ(refusal([&] { device->make_buffer(kMostBytes); }),
            "sim: the program needs more than 1000000000000000 bytes of memory");
  EXPECT_NE(refusal([&] { device->make_buffer(std::size_t{1} << 63); }), "");
}

}  // namespace
}  // namespace coshard
