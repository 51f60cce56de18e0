#pragma once
// The output of a run: the text at the end, the JSON file, the trace. On main's thread, after the
// ranks have ended.
#include <ostream>
#include <string>
#include <vector>

#include "examples/train/compressors.h"
#include "examples/train/training.h"

namespace coshard::train {

void print_report(std::ostream& out, const Options& options, const Outcome& outcome,
                  const std::vector<Compressor>& compressors);

// What is wrong with the run, as one line; empty: nothing. "the loss is nan at step 17 (...)".
std::string loss_error(const Options& options, const Outcome& outcome);

// tokens_per_s and step_ms (of the median step), loss by step, bits_per_byte, gemm_share,
// hidden_share, config, stopped (null, or after_step and why), ...
std::string report_json(const Options& options, const Outcome& outcome,
                        const std::vector<Compressor>& compressors);

// Writes --json and --trace if requested. Returns the failures, one line per file.
std::vector<std::string> write_files(const Options& options, const Outcome& outcome,
                                     const std::vector<Compressor>& compressors);

}  // namespace coshard::train
