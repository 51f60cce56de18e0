// A window's bytes: zeros where no tensor lies, tensors where they do, also where a chunk cuts one.
#include "dtensor/checkpoint/exchange.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dtensor/checkpoint/local_parts.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

// A file of 2 MiB and a bit: a gap, a tensor over the cut, another after a gap of odd length.
TEST(Exchange, CollectsAndSpreadsWindowsThatCutElements) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const std::int64_t first = kChunk - 13, second = 2 * kChunk + 3;
    const Shape a{11, 4}, b{3, 5};
    const Tensor of_a = counting(world, a, DType::F64), of_b = counting(world, b, DType::F32);
    std::vector<Tensor> tensors{distribute_tensor(of_a, mesh, Shard(1)),
                                distribute_tensor(of_b, mesh, Shard(0))};
    const std::vector<DType> types{DType::F64, DType::F32};
    Task<std::vector<HeldTensor>> told = holders_of(world, tensors, types);
    std::vector<HeldTensor> held = co_await std::move(told);
    std::vector<PlacedTensor> placed;
    placed.push_back({0, first, first + 11 * 4 * 8, std::move(held[0])});
    placed.push_back({0, second, second + 3 * 5 * 4, std::move(held[1])});
    const std::int64_t bytes = second + 3 * 5 * 4;
    const Bands bands({bytes}, {{0, 0, bytes}}, 2, kChunk);
    Exchange exchange(world, bands, placed);
    EXPECT_EQ(bands.windows(), 2);
    EXPECT_EQ(exchange.last_windows(), (std::vector<int>{0, 1}));

    std::vector<std::byte> want(static_cast<std::size_t>(bytes));
    const std::vector<double> values = of_a.to_vector(), wide = of_b.to_vector();
    const std::vector<float> narrow(wide.begin(), wide.end());
    std::memcpy(want.data() + first, values.data(), 11 * 4 * 8);
    std::memcpy(want.data() + second, narrow.data(), 3 * 5 * 4);
    PartsToSave reads(tensors, types);
    std::vector<Tensor> read{distribute_tensor(of_a * 0.0, mesh, Shard(1)),
                             distribute_tensor(of_b * 0.0, mesh, Shard(0))};
    PartsToLoad writes(read, types);
    for (int window = 0; window < bands.windows(); ++window) {
      std::vector<std::byte> got(
          static_cast<std::size_t>(bytes_in_memory(bands.window(world.rank(), window))),
          std::byte{7});
      Task<void> collected = exchange.collect(window, reads, got);
      co_await std::move(collected);
      std::vector<std::byte> part;
      for (const FileBytes& p : bands.window(world.rank(), window))
        part.insert(part.end(), want.begin() + p.begin, want.begin() + p.end);
      part.resize(got.size());
      EXPECT_TRUE(got == part) << window;
      Task<void> spread = exchange.spread(window, got, writes);
      co_await std::move(spread);
    }
    for (std::size_t i = 0; i < read.size(); ++i)
      EXPECT_EQ(read[i].raw_local().to_vector(), tensors[i].raw_local().to_vector());
  });
}

}  // namespace
}  // namespace coshard::testing
