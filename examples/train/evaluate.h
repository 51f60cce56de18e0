#pragma once
// What the trained model is worth: bits per byte on held-out text, and a sample. On the ranks'
// threads; all ranks call alike and get the same.
#include <optional>
#include <string>

#include "examples/train/language_model.h"

namespace coshard::train {

// Mean code length of the bytes of the first --eval-blocks held-out blocks; each byte is predicted
// from at least seq/2 bytes before it. Nothing when the text is too short to hold a block out.
Task<std::optional<double>> held_out_bits_per_byte(LanguageModel& model, const Options& options,
                                                   const Text& text);

// --sample bytes that continue --prompt, drawn at --temperature. The prompt is not part of it.
Task<std::string> sample_continuation(LanguageModel& model, const Options& options);

}  // namespace coshard::train
