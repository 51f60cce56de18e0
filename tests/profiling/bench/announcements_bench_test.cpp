#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "profiling/bench/benches.h"

namespace coshard::bench {
namespace {

TEST(AnnouncementsBench, CountsOneMessagePerProcessAndCollective) {
  const Report report = bench_announcements({.collectives = 1000, .most = 4});
  for (const int processes : {2, 4}) {
    const Result* messages = report.find(str_cat("announced_messages_", processes));
    ASSERT_NE(messages, nullptr);
    EXPECT_GE(messages->value, 1);
    EXPECT_LE(messages->value, 1.02);  // with acknowledgements
    const Result* cpu = report.find(str_cat("announced_cpu_", processes));
    ASSERT_NE(cpu, nullptr);
    EXPECT_GT(cpu->value, 0);
    EXPECT_GE(report.find(str_cat("barrier_messages_", processes))->value, processes - 1);
  }
}

}  // namespace
}  // namespace coshard::bench
