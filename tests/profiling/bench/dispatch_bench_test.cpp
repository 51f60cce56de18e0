// `coshard bench dispatch`: every part gives its figures.
#include <gtest/gtest.h>

#include "profiling/bench/benches.h"

namespace coshard::bench {
namespace {

TEST(DispatchBench, GivesAFigureForEveryPart) {
  const Report report = bench_dispatch({});
  for (const char* name :
       {"yield_between_two_ready_tasks", "dtensor_add", "decision_miss_matmul",
        "decision_miss_linear", "redistribute_S0_to_R_4KiB", "dtensor_add_grad",
        "tensor_matmul_512_f64", "plan_miss_8x8x16_uneven", "barrier_64_ranks"}) {
    ASSERT_NE(report.find(name), nullptr) << name;
    EXPECT_GT(report.find(name)->value, 0) << name;
  }
}

}  // namespace
}  // namespace coshard::bench
