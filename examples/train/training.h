#pragma once
// The training run of one rank: steps, then held-out score and sample. Rank 0 leaves what it found
// in the Outcome; every rank leaves its tables and traces in its own slot.
#include <optional>
#include <string>
#include <vector>

#include "examples/train/options.h"
#include "examples/train/text.h"
#include "profiling/chrome_trace.h"
#include "profiling/exit_table.h"
#include "runtime/launch/world.h"

namespace coshard::train {

// Steps at the start that the figures leave out: caches fill and kernels are compiled.
constexpr int kSettlingSteps = 2;

struct Outcome {
  explicit Outcome(int ranks)
      : tables(static_cast<std::size_t>(ranks)), traces(static_cast<std::size_t>(ranks)) {}

  // of rank 0
  std::int64_t parameters = 0;
  std::vector<double> loss;     // nats per byte, by step
  std::vector<double> step_ms;  // by step
  double gemm_share = 0;        // of the time of the steps that count
  std::optional<double> bits_per_byte;
  std::string sample;
  // of every rank
  std::vector<ExitTable> tables;
  std::vector<ChromeTrace> traces;
};

// Peak rate x linear warm-up, then a cosine down to a tenth of it. step counts from 0.
double learning_rate(const Options& options, int step);

Task<void> train_rank(World& world, const Options& options, const Text& text, Outcome& outcome);

}  // namespace coshard::train
