#pragma once
// The benches of the `coshard` command, one file each. They run ranks as threads of this process
// and, on request, PyTorch (a program of profiling/bench/peer) or Open MPI in the same run for
// comparison. Call them from a thread that runs no executor. `world` of their options selects
// device and communicator; each bench sets ranks and threads itself. Options are validated by the
// command (tools/command.cpp), and not again here.
#include <functional>
#include <string>

#include <coshard/runtime/launch/world.h>
#include "profiling/bench/report.h"

namespace coshard::bench {

// `progress` of the options below is called with a line of text from time to time; may be empty.
using Progress = std::function<void(const std::string&)>;

// Host cost of a task, a yield, and tensor operations on 64x64 f32; products of 512x512.
struct DispatchOptions {
  int ranks = 2;
  std::string peer;  // path of the PyTorch program; empty: no comparison
  WorldOptions world = {};
};
Report bench_dispatch(const DispatchOptions& options);

// Collectives and redistributes of 4 KiB to 16 MiB.
struct RedistributeOptions {
  int ranks = 2;
  std::string peer;
  std::string mpi_program;  // path of mpi_all_reduce; empty: no Open MPI
  WorldOptions world = {};
};
Report bench_redistribute(const RedistributeOptions& options);

// How much of a collective the sibling branch of a when_all hides, on an emulated link whose
// collectives take as long as a computation; and how much one branch alone hides (nothing).
struct OverlapOptions {
  int ranks = 0;           // 0: 2 and then 4
  int steps = 8;           // computations, and collectives, per branch
  int rounds = 7;          // of all programs, interleaved; the median counts
  double compute_ms = 20;  // of a computation, roughly, while all ranks compute
  int draws = 0;           // if not 0: only tries the gate, on so many random shapes and links
  WorldOptions world = {};
};
Report bench_overlap(const OverlapOptions& options);

// A training step of the Transformer on random tokens, AdamW at 1e-3, as the PyTorch program does.
struct TrainOptions {
  int ranks = 0;  // 0: the cases of the comparison (1 and 2 ranks, both plans, batch 8 and 2)
  int threads = 1;
  int dim = 256, heads = 8, layers = 4, ffn = 688, seq = 256, batch = 8;
  int steps = 15;
  std::string plan = "tp";  // tp, tp-sp or dp
  std::string dtype = "f32";
  std::string peer;
  int rounds = 3;  // of ours and the peer, interleaved; the median counts
  Progress progress;
  WorldOptions world = {};
};
Report bench_train(const TrainOptions& options);

// The forecast of the device `sim` for the step of bench train, with the plans tp, tp-sp and dp,
// each serial and overlapped, next to the measured time. Rates: of a step without communication.
struct ForecastOptions {
  TrainOptions step{.ranks = 2, .rounds = 7};  // its shape, batch, ranks and rounds
  std::string link = "50us,400MB/s";           // emulated, where ranks are threads
  WorldOptions world = {};
};
Report bench_forecast(const ForecastOptions& options);

// save and cold load of so many megabytes in three layouts, beside dd past the page cache, in
// interleaved rounds; CPU time, and what a save leaves in the page cache. `peer`:
// peer/bench_pytorch_checkpoint.py.
struct CheckpointOptions {
  int ranks = 2;
  int megabytes = 512;
  int rounds = 7;
  std::string folder = ".";  // on the disk to measure; a folder within it is made and removed
  std::string peer;
  WorldOptions world = {};
};
Report bench_checkpoint(const CheckpointOptions& options);

// What the processes of a GPU job pay to compare the collectives that NCCL performs: messages and CPU
// time per process and collective, in 2, 4, 8 and 16 processes of this host. Beside it a barrier over
// the same connections, which every process tells every other. Forks: no other thread may run.
struct AnnouncementsOptions {
  int collectives = 20'000;
  int most = 16;  // processes
  WorldOptions world = {};
};
Report bench_announcements(const AnnouncementsOptions& options);

// One device: a Llama-8B-shaped block forward and backward, its attention alone, a large matmul,
// bandwidth of fused kernels as a share of a copy's, host time per operator and per cached
// redistribute. All devices: bandwidth of collectives. `peer`: peer/bench_pytorch_gpu.py.
struct GpuOptions {
  bool tiny = false;  // sizes for a test, not for benchmarking
  std::string peer;
  Progress progress;
  WorldOptions world = {};
};
Report bench_gpu(const GpuOptions& options);

}  // namespace coshard::bench
