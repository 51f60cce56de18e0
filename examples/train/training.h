#pragma once
// The training run of one rank: steps, then held-out score and sample. Rank 0 puts the results of
// all ranks into the Outcome, which other processes do not get.
//
// With --save it keeps checkpoints and may go on from one. It ends before its last step in two cases, on all ranks after the same step. A requested stop
// (WorldOptions::stop) ends it after the current step or the next one; checkpoint, score and sample
// follow as usual. A non-finite loss ends it when it is read, without score and sample: on the cpu after each
// step, on a device after every tenth, so that no step waits for it.
#include <optional>
#include <string>
#include <vector>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/runtime/launch/world.h>
#include "examples/train/options.h"
#include "examples/train/text.h"

namespace coshard::train {

// Steps at the start that the figures exclude: caches fill and kernels are compiled.
constexpr int kSettlingSteps = 2;

struct Outcome {
  std::int64_t parameters = 0;
  int threads = 0;               // of each rank
  int resumed_from = 0;          // the step of the checkpoint; 0: none
  std::vector<double> loss;      // nats per byte, by step since
  std::vector<double> step_ms;   // by step since
  std::vector<double> stall_ms;  // of each checkpoint: how long it has held up training
  std::string saved;             // the last one; empty: none
  // How many steps were complete when the run ended early, or with a non-finite loss; 0: neither.
  int stopped_after = 0;
  // Of the time of the steps that count; none on a device that queues its work.
  std::optional<double> gemm_share;
  std::optional<double> bits_per_byte;
  std::string sample;
  // of every rank; traces only if requested
  std::vector<CommSummary> tables;
  std::vector<ChromeTrace> traces;
};

// The first step, counted from 1, whose loss is not finite; 0: all are.
int step_not_finite(const Outcome& outcome);

// Peak rate x linear warm-up, then a cosine down to a tenth of it. step counts from 0.
double learning_rate(const Options& options, int step);

Task<void> train_rank(World& world, const Options& options, const Text& text, Outcome& outcome);

}  // namespace coshard::train
