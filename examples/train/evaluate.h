#pragma once
// Evaluation of the trained model: bits per byte on held-out text, and a sample. On the ranks'
// threads; all ranks make the same calls and get the same results.
#include <optional>
#include <string>

#include "examples/train/language_model.h"

namespace coshard::train {

// Mean code length of the bytes of the first --eval-blocks held-out blocks; each byte is predicted
// from at least seq/2 bytes before it. nullopt: the text is too short to hold out a block.
Task<std::optional<double>> held_out_bits_per_byte(LanguageModel& model, const Options& options,
                                                   const Text& text);

// --sample bytes that continue --prompt, drawn at --temperature. The prompt is not included.
Task<std::string> sample_continuation(LanguageModel& model, const Options& options);

}  // namespace coshard::train
