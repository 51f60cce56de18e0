#pragma once
// The parts of `coshard bench gpu`. Each runs on the rank's thread of a world of one rank (a
// redistribute: two; collectives, overlap: as many as there are GPUs, at least two) and adds its results;
// peer/bench_pytorch_gpu.py does the same work on one GPU under the same names.
#include <cstdint>
#include <functional>
#include <vector>

#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/bench/report.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {

using GpuResults = std::vector<Result>;

// Sizes of the work; the script gets them as arguments.
struct GpuSizes {
  std::int64_t hidden = 4096, ffn = 14336, heads = 32, kv_heads = 8;  // Llama 3 8B
  std::int64_t tokens = 4096, vocab = 128256;
  std::int64_t matmul = 8192;
  std::int64_t parameters = std::int64_t{1} << 28;  // of AdamW, in 16 tensors
  std::int64_t copied = std::int64_t{1} << 30;      // bf16 elements
  std::vector<std::int64_t> collective_kib = {64, 1024, 16384, 262144};
  std::int64_t gathered = 65536;  // rows of 1024 bf16 elements, over all ranks
  std::int64_t product = 4096;    // under which they are gathered
  int calls = 1000;               // whose host time is measured
  int steps = 10;                 // of everything else, per round

  static GpuSizes tiny();
};

// Microseconds per call, for `calls` calls that are queued and then waited for together.
template <class F>
RobustStats timed_on_device(Device& device, const F& call, int calls) {
  for (int i = 0; i < 3; ++i) call();
  device.synchronize();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    device.synchronize();
    rounds.push_back(seconds_since(begin) / calls * 1e6);
  }
  return robust_stats(rounds);
}

// The same for steps that are tasks.
Task<RobustStats> timed_steps(Device& device, std::function<Task<void>()> step, int calls);

// Host time per call in microseconds; waiting for the device is not included.
template <class F>
RobustStats timed_on_host(Device& device, const F& call, int calls) {
  constexpr int kBurst = 100;  // a device queues about a thousand calls; then the host blocks
  for (int i = 0; i < kBurst; ++i) call();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    double seconds = 0;
    int done = 0;
    for (; done < calls; done += kBurst) {
      device.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kBurst; ++i) call();
      seconds += seconds_since(begin);
    }
    rounds.push_back(seconds / done * 1e6);
  }
  device.synchronize();
  return robust_stats(rounds);
}

Task<void> measure_host_time(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_host_redistribute(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_matmul(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_bandwidth(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_attention(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_block(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_collective_bandwidth(World& world, const GpuSizes& sizes, GpuResults& results);
Task<void> measure_overlap(World& world, const GpuSizes& sizes, GpuResults& results);

}  // namespace coshard::bench
