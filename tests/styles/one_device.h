#pragma once
// Training with sharded parameters beside one device that has the rows of all ranks.
#include <coshard/styles/fully_shard.h>
#include "tests/styles/support.h"

namespace coshard::testing {

// Whose rows a rank trains on: those of ranks 0 to count-1.
struct DataRank {
  int index = 0, count = 1;
};

inline Tensor rows_of_data_rank(World& world, int rank, int step, std::int64_t features) {
  manual_seed(static_cast<std::uint64_t>(900 + step * 16 + rank));
  return random(world, Shape{3, features}).detach();
}

// Compares losses, every gradient, and every parameter after each of two steps of AdamW; the second
// has two micro-batches.
inline Task<void> expect_as_on_one_device(World& world, Module& sharded, Module& alone,
                                          DataRank data, std::int64_t features) {
  AdamW optimizer(sharded.parameters(), {.lr = 0.01}), reference(alone.parameters(), {.lr = 0.01});
  for (int step = 0, batch = 0; step < 2; ++step) {
    optimizer.zero_grad();
    reference.zero_grad();
    for (int more = 0; more <= step; ++more, ++batch) {
      double want = 0;
      for (int rank = 0; rank < data.count; ++rank) {
        const Tensor y = co_await alone.forward(rows_of_data_rank(world, rank, batch, features));
        const Tensor loss = mul(mean(mul(y, y)), 1.0 / data.count);
        if (rank == data.index) want = loss.item() * data.count;
        co_await backward(loss);
      }
      const Tensor x = rows_of_data_rank(world, data.index, batch, features);
      const Tensor y = co_await sharded.forward(x);
      const Tensor loss = mean(mul(y, y));
      EXPECT_NEAR(loss.item(), want, 1e-12 * (1 + want));
      co_await backward(loss);
    }
    const auto got = sharded.named_parameters(), want = alone.named_parameters();
    EXPECT_EQ(got.size(), want.size());
    for (std::size_t p = 0; p < want.size(); ++p) {
      EXPECT_TRUE(want[p].slot->grad().defined()) << want[p].name;
      expect_close(got[p].slot->grad(), want[p].slot->grad());
    }
    co_await optimizer.step();
    co_await reference.step();
    for (std::size_t p = 0; p < want.size(); ++p) expect_close(*got[p].slot, *want[p].slot, 1e-8);
  }
}

}  // namespace coshard::testing
