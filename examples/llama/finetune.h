#pragma once
// `llama finetune`: trains the model of a Hugging Face folder, or LoRA adapters of it, on a text.
#include <coshard/coshard.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "profiling/input_file.h"
#include "profiling/step_log.h"
#include "runtime/launch/cli_options.h"

namespace coshard::llama {

struct FinetuneOptions : WorldOptions {
  std::string folder, text;                      // the model; a text in UTF-8, or its ids as .npy
  std::string plan = "tp";                       // or one, tp-sp, dp, fsdp
  std::string dtype_name = "";                   // of the parameters; "": the folder's
  std::vector<std::string> ignore{};             // keys of config.json
  int steps = 100, warmup = 10, log_every = 10;  // optimizer steps
  int batch = 4, seq = 512;                      // sequences of a step, of all ranks; their tokens
  double lr = 1e-4;                              // peak; cosine decay to a tenth
  std::uint64_t seed = 1;                        // of adapters, order of the text and dropout
  int lora = 0;                                  // rank of the adapters; 0: the whole model
  double alpha = 16, dropout = 0;                // of adapters
  std::string targets = "model.layers.*.self_attn.[qv]_proj";  // patterns, with commas between
  std::string save;                                            // the new folder; "": none
  int every = 0;        // checkpoints, and one at the end, in save + ".steps"; 0: none
  bool resume = false;  // from the newest of these
};

// Declares the options, those of run_ranks included, in `app`, which the program parses.
void add_finetune(CLI::App& app, FinetuneOptions& options);
// After parsing. Error{BadInput}: options that do not fit together; `save` is there already.
void check_finetune(const FinetuneOptions& options);

// The text's ids, without special tokens around it. A file whose name ends with ".npy" has them
// already (TokenFile). Once per process, before run_ranks.
template <class Tokenizer>
TokenFile tokens_of(const FinetuneOptions& options) {
  if (options.text.ends_with(".npy")) return TokenFile(options.text);
  std::ifstream in = open_input(options.text, "--text");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Tokenizer tokenizer = Tokenizer::open(options.folder);
  std::vector<std::int64_t> ids;
  try {
    ids = tokenizer.encode(text, false);
  } catch (const Error& wrong) {
    fail(wrong.kind(), str_cat("--text ", options.text, ": ", wrong.message()));
  }
  return TokenFile(ids, options.text);
}

// Trains, prints progress on rank 0, and saves: the folder of a model, which transformers opens, or
// of adapters, which PEFT does. `figures`: what rank 0 learns of losses and times. If a stop is
// requested (WorldOptions::stop), all ranks stop after the same step and save what there is: with
// `every` a checkpoint, else the model or the adapters.
//   Fails:  Error{BadInput}: as open_model, load, add_lora and TokenBatches; a loss that is not
//           finite, after which nothing is saved.
Task<void> finetune(World& world, const FinetuneOptions& options, TokenFile tokens,
                    StepFigures& figures);

}  // namespace coshard::llama
