// A call is decided once, whatever its tensors are.
#include "dtensor/ops/decision.h"

#include <gtest/gtest.h>

#include "dtensor/bounded_cache.h"
#include "dtensor/ops/ops.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

std::size_t decisions() {
  for (const CacheSize& cache : cache_sizes())
    if (cache.name == "decisions") return cache.entries;
  return 0;
}

TEST(Decision, OfPlainTensorsAndDTensorsIsMadeOnceForEachKindOfCall) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = counting(world, {4, 3});
    const DTensor cut = distribute_tensor(plain, mesh, Shard(0), std::nullopt);
    for (const Tensor& x : {plain, cut}) {
      const std::size_t before = decisions();
      const Tensor sum = add(x, x);
      EXPECT_EQ(decisions(), before + 1);
      EXPECT_EQ(add(x, sum).to_vector(), add(sum, x).to_vector());
      EXPECT_EQ(decisions(), before + 1);
      sub(x, x);
      EXPECT_EQ(decisions(), before + 2);
    }
    const std::size_t before = decisions();
    add(counting(world, {3, 4}), counting(world, {3, 4}));  // another shape
    EXPECT_EQ(decisions(), before + 1);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
