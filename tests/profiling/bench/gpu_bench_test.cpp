// `coshard bench gpu` in sizes that say nothing about speed: every part gives its figures.
#include <gtest/gtest.h>

#include <fstream>

#include "profiling/bench/benches.h"
#include "tests/support/json.h"

namespace coshard::bench {
namespace {

GpuOptions tiny_options() {
  GpuOptions options;
  options.tiny = true;
  options.world.threads = 1;
  return options;
}

TEST(GpuBench, EveryPartGivesItsFigures) {
  const Report report = bench_gpu(tiny_options());
  EXPECT_EQ(report.failures, std::vector<std::string>());
  for (const char* name : {"host_add",
                           "host_linear",
                           "host_rms_norm",
                           "host_dtensor_add",
                           "host_redistribute",
                           "matmul",
                           "copy",
                           "rms_norm",
                           "rms_norm_of_copy",
                           "layer_norm_of_copy",
                           "rms_norm_forward_backward_of_copy",
                           "cross_entropy_of_copy",
                           "adamw_of_copy",
                           "attention_forward",
                           "attention_backward",
                           "attention_decode",
                           "block",
                           "block_tflops",
                           "all_reduce_1KiB",
                           "all_gather_4KiB",
                           "reduce_scatter_1KiB",
                           "all_to_all_4KiB",
                           "overlap_gather",
                           "overlap_awaited_last"}) {
    const Result* found = report.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_GT(found->value, 0) << name;
  }
}

TEST(GpuBench, RatiosAreBetterWhenOursIsFasterOrShorter) {
  const std::string script = coshard::testing::temporary_path("peer.py");
  std::ofstream(script) << "print('{\"matmul\": 1e-9, \"block_eager\": 1e9, \"host_add\": 1e9}')\n";
  GpuOptions options = tiny_options();
  options.peer = script;
  const Report report = bench_gpu(options);
  std::remove(script.c_str());
  for (const char* name : {"matmul_over_pytorch", "block_over_eager", "host_add_over_pytorch"}) {
    ASSERT_NE(report.find(name), nullptr) << name;
    EXPECT_GT(report.find(name)->value, 1) << name;
  }
  EXPECT_EQ(report.find("block_over_compiled"), nullptr);
  EXPECT_EQ(report.find("block_over_eager")->target, 1.15);
}

TEST(GpuBench, APartThatFailsIsToldOfAndTheOthersRun) {
  GpuOptions options = tiny_options();
  options.peer = "/nowhere/peer.py";
  const Report report = bench_gpu(options);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_NE(report.failures[0].find("/nowhere/peer.py"), std::string::npos);
  EXPECT_NE(report.find("block"), nullptr);
  EXPECT_TRUE(coshard::testing::json_holds(report.json(), "assert len(d['failures']) == 1"));
}

}  // namespace
}  // namespace coshard::bench
