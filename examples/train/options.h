#pragma once
// The command line of examples/train, checked. A value made once in main and shared, unchanged, by
// all ranks.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::train {

struct Options {
  int ranks = 0, threads = 0;  // as in WorldOptions; once parsed, the number of ranks
  std::string device = "cpu", communicator = "local";
  std::string link;                 // "20us,1GB/s": emulated; empty: none
  int progress_threads = 0;         // that move data while ranks compute
  std::optional<int> rank_threads;  // that ranks share; none: one each
  std::chrono::milliseconds timeout = WorldOptions().timeout, grace = WorldOptions().grace;
  int layers = 4, dim = 256, heads = 8, ffn = 688;
  int seq = 256, batch = 4;  // bytes per sequence, sequences per step
  int steps = 1000, warmup = 100;
  double lr = 2e-3;
  std::string dtype_name = "f32", plan = "tp", overlap = "auto";
  std::uint64_t seed = 1;
  bool measure_links = false;  // before the first step
  int weave = 1;               // interleaved parts of a batch (woven.h); 1: none
  std::string text = "data/kjv.txt";
  std::string save;         // folder of checkpoints; empty: none
  int every = 0, keep = 2;  // steps between two of them, 0: at the end alone; how many stay
  bool resume = false;      // from the newest of them
  std::string trace, json;  // files to write; empty: none
  int trace_steps = 3;      // how many steps the trace holds, after the first
  std::string prompt = "And it came to pass";
  int sample = 300;  // bytes of the sampled continuation; 0: none
  double temperature = 0.8;
  int eval_blocks = 64;  // at most this many held-out blocks are scored; 0: none
  int log_every = 50;    // steps between two plain lines

  DType dtype() const { return parse_dtype(dtype_name); }
  WorldOptions world() const;
  bool sequence_parallel() const { return plan == "tp-sp"; }
  // Each rank has its own sequences; sharded: and a part of the parameters.
  bool data_parallel() const { return plan == "dp" || sharded(); }
  bool sharded() const { return plan == "fsdp"; }
};

// Reads and checks argv. nullopt: --help was requested and has been printed. Error{BadInput}: an
// option that is unknown or malformed, or values that conflict, named in one line. Touches no file.
std::optional<Options> parse_options(int argc, char** argv);

// Error{BadInput} if --trace or --json could not be written. Creates nothing.
void require_writable(const Options& options);

}  // namespace coshard::train
