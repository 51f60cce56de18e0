// The bench of several processes, here as one: what MPI would do is counted.
#include "profiling/bench/processes_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <coshard/runtime/error.h>

namespace coshard::bench {
namespace {

int calls = 0;

const char* count(BlockingCollective, const void*, void*, std::size_t) {
  ++calls;
  return nullptr;
}

Processes job(int self) {
  Processes several;
  several.all = 2;
  several.self = self;
  several.mpi = "an MPI";
  several.blocking = count;
  return several;
}

TEST(ProcessesBench, ComparesEveryRedistributeWithItsCollectiveOfTheMpi) {
  Report report("redistribute");
  bench_processes(report, {.threads = 1}, job(0));
  EXPECT_GT(calls, 0);
  for (const char* what : {"all_reduce", "P_to_R", "S0_to_R", "P_to_S0", "S0_to_S1"})
    for (const char* size : {"4KiB", "64KiB", "1024KiB", "4096KiB", "16384KiB"})
      for (const char* before : {"", "mpi_", "ratio_mpi_"})
        EXPECT_EQ(
            std::ranges::count(report.results, str_cat(before, what, '_', size), &Result::name), 1)
            << before << what << '_' << size;
}

TEST(ProcessesBench, WhatTheMpiRefusesIsTheError) {
  Processes several = job(1);
  several.blocking = [](BlockingCollective, const void*, void*, std::size_t) {
    return "MPI_Allreduce: no memory";
  };
  Report report("redistribute");
  EXPECT_THROW(bench_processes(report, {.threads = 1}, several), Error);
}

}  // namespace
}  // namespace coshard::bench
