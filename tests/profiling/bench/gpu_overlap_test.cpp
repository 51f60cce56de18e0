// The part of `coshard bench gpu` that hides an all_gather, in sizes that say nothing about speed.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "profiling/bench/gpu_cases.h"
#include "tests/support/device.h"

namespace coshard::bench {
namespace {

TEST(GpuOverlap, GivesItsTimesOnAllRanks) {
  for (const int ranks : {1, 2, 3}) {
    GpuSizes sizes = GpuSizes::tiny();
    sizes.gathered = 6;
    run_ranks(coshard::testing::test_options(ranks), [&sizes](World& world) -> Task<void> {
      GpuResults results;
      Task<void> measured = measure_overlap(world, sizes, results);
      co_await std::move(measured);
      std::map<std::string, double> values;
      for (const Result& result : results) values[result.name] = result.value;
      for (const char* name :
           {"overlap_gather", "overlap_products", "overlap_awaited_first", "overlap_awaited_last"})
        EXPECT_GT(values[name], 0) << name;
      if (values.contains("overlap_efficiency")) {
        EXPECT_LE(values["overlap_efficiency"], 1.05);
      }
    });
  }
}

}  // namespace
}  // namespace coshard::bench
