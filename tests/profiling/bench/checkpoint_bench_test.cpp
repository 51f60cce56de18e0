// bench checkpoint: its figures are there, and its folder is gone.
#include <gtest/gtest.h>

#include <filesystem>

#include "profiling/bench/benches.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::bench {
namespace {

TEST(CheckpointBench, HasAllFiguresAndLeavesNothing) {
  const testing::ScratchFolder scratch;
  CheckpointOptions options;
  options.megabytes = 16;
  options.rounds = 1;
  options.folder = scratch.path("");
  const Report report = bench_checkpoint(options);
  for (const char* name : {"save_S0", "save_S1", "save_R", "load_S0", "load_S1", "load_R"}) {
    ASSERT_NE(report.find(name), nullptr) << name;
    EXPECT_GT(report.find(name)->value, 0) << name;
  }
  for (const char* name : {"save_cached", "save_cpu", "load_cpu"})
    EXPECT_NE(report.find(name), nullptr) << name;
  for (const char* demand : {"at_5_percent", "at_full_rate"}) {  // S41
    const Result *plain = report.find(std::string("step_") + demand),
                 *saved = report.find(std::string("saved_step_") + demand),
                 *asked = report.find(std::string("saves_") + demand);
    ASSERT_TRUE(plain != nullptr && saved != nullptr && asked != nullptr) << demand;
    EXPECT_GT(plain->value, 0);
    EXPECT_DOUBLE_EQ(asked->value, saved->value / plain->value);
    EXPECT_TRUE(asked->target && !asked->more_is_better);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("")));
}

}  // namespace
}  // namespace coshard::bench
