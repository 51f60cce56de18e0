// A collective that sends what another one is to fill, which fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

Collective all_reduce(std::vector<float>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  return c;
}

// Rank 0 sends to all what an all_reduce of ranks 0 and 1 gives, and gives that up. Who gets it.
Task<void> chained(World& world, std::vector<int>& got) {
  const std::vector<int> two{0, 1};
  const auto pair = world.group(two, "pair");
  std::vector<float> data(200'000, 1), all(200'000, -1);
  Work first;
  if (pair != nullptr) first = pair->issue(all_reduce(data));
  Collective c;
  c.kind = CollectiveKind::Broadcast;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = world.rank() == 0 ? data.data() : nullptr;
  c.recv = all.data();
  if (world.rank() == 0) c.after = first.state();
  const Work second = world.communicator()->issue(std::move(c));
  if (world.rank() < 2) co_await yield();
  if (world.rank() == 0) pair->poison("given up");
  try {
    if (world.rank() < 2) first.wait();
  } catch (const Error&) {
  }
  co_await second;
  EXPECT_TRUE(std::ranges::all_of(all, [](float x) { return x == 2; }))
      << "rank " << world.rank() << " got " << all.front() << " ... " << all.back();
  ++got[static_cast<std::size_t>(world.rank())];
}

TEST(Chained, WhatNeverCameIsNotSent) {
  int failed = 0;
  std::vector<int> got(4);
  for (const int processes : {1, 2, 4}) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      WorldOptions options;
      options.ranks = 4;
      options.timeout = 60s;
      try {
        simulate(options, [&](World& world) { return chained(world, got); }, seed,
                 {.processes = processes});
      } catch (const Error& error) {
        ++failed;
        EXPECT_NE(std::string(error.what()).find("given up"), std::string::npos) << error.what();
      }
      if (HasFailure()) FAIL() << processes << " processes, seed " << seed;
    }
  }
  std::printf("%d failed, %d got it\n", failed, got[3]);
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace coshard::testing
