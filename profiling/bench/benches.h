#pragma once
// The benches of the `coshard` command, one file each. They run ranks as threads of this process
// and, where asked, PyTorch (bench_pytorch.py) or Open MPI beside them in the same run. Call them
// from a thread that runs no executor. `world` of their options says on what they run: device and
// communicator; ranks and threads are the bench's own. Their numbers are what the command
// lets through (tools/command.cpp), and are not checked again.
#include <functional>
#include <string>

#include <coshard/runtime/launch/world.h>
#include "profiling/bench/report.h"

namespace coshard::bench {

// `progress` of the options below is called with a line of text now and then; may be empty.
using Progress = std::function<void(const std::string&)>;

// Host cost of a task, a yield, and of tensor operations on 64x64 f32.
struct DispatchOptions {
  int ranks = 2;
  std::string peer;  // path of bench_pytorch.py; empty: without
  WorldOptions world = {};
};
Report bench_dispatch(const DispatchOptions& options);

// Collectives and redistributes of 4 KiB to 16 MiB.
struct RedistributeOptions {
  int ranks = 2;
  std::string peer;
  std::string mpi_program;  // path of mpi_all_reduce; empty: without Open MPI
  WorldOptions world = {};
};
Report bench_redistribute(const RedistributeOptions& options);

// What the sibling branch of a when_all hides of a collective on an emulated link that takes as
// long for a collective as a computation lasts, and what one branch alone does (nothing).
struct OverlapOptions {
  int ranks = 0;           // 0: 2 and then 4
  int steps = 8;           // computations, and collectives, of a branch
  int rounds = 7;          // of all programs in turns; the median counts
  double compute_ms = 20;  // of a computation, about, while all ranks compute
  int draws = 0;           // shapes and links on which the gate is tried, and nothing else; 0: none
  WorldOptions world = {};
};
Report bench_overlap(const OverlapOptions& options);

// One training step of the Transformer, on random tokens with AdamW at 1e-3, as bench_pytorch.py
// does it.
struct TrainOptions {
  int ranks = 0;  // 0: the set of the comparison (1 and 2 ranks, both plans, batch 8 and 2)
  int threads = 1;
  int dim = 256, heads = 8, layers = 4, ffn = 688, seq = 256, batch = 8;
  int steps = 15;
  std::string plan = "tp";  // tp, tp-sp or dp
  std::string dtype = "f32";
  std::string peer;
  int rounds = 3;  // of ours and the peer in turns; the median round counts
  Progress progress;
  WorldOptions world = {};
};
Report bench_train(const TrainOptions& options);

// What the device `sim` forecasts for the step of bench train, with the plans tp, tp-sp and dp, each
// serial and overlapped, beside what it takes here. Rates come from a step of ranks that do not
// communicate.
struct ForecastOptions {
  TrainOptions step{.ranks = 2, .rounds = 7};  // its shape, batch, ranks and rounds
  std::string link = "50us,400MB/s";           // emulated, where ranks are threads
  WorldOptions world = {};
};
Report bench_forecast(const ForecastOptions& options);

// One device: a Llama-8B-shaped block forward and backward, its attention alone, a large matmul,
// bandwidth of fused kernels as a share of a copy's, host time per operator and per cached
// redistribute. All devices: bandwidth of collectives. Beside PyTorch with
// peer/bench_pytorch_gpu.py.
struct GpuOptions {
  bool tiny = false;  // sizes for a test, not for figures
  std::string peer;
  Progress progress;
  WorldOptions world = {};
};
Report bench_gpu(const GpuOptions& options);

}  // namespace coshard::bench
