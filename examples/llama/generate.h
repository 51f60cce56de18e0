#pragma once
// `llama generate` and `llama chat`: text from the model of a Hugging Face folder.
#include <coshard/coshard.h>

#include <optional>
#include <string>
#include <vector>

#include "examples/llama/chat_template.h"
#include "examples/llama/tokenizer.h"
#include "runtime/launch/cli_options.h"

namespace coshard::llama {

struct GenerateOptions : WorldOptions {
  std::string folder, adapter, system, chat_template, dtype_name, json;
  std::vector<std::string> prompts, ignore;
  bool raw = false, greedy = false, ignore_eos = false;
  // What is not given is that of generation_config.json.
  std::optional<std::int64_t> tokens, top_k;
  std::optional<double> temperature, top_p, repetition_penalty;
  std::uint64_t seed = 0;
};

// Declare the options, those of run_ranks included, in `app`, which the program parses.
void add_generate(CLI::App& app, GenerateOptions& options);
void add_chat(CLI::App& app, GenerateOptions& options);

// What is common to all ranks of a process, read once.
struct Speaker {
  explicit Speaker(const GenerateOptions& options);
  const GenerateOptions& options;
  Tokenizer tokenizer;
  nn::GenerationOptions generation;
  // The ids of a conversation, or with --raw of its last message.
  std::vector<std::int64_t> ids_of(const std::vector<Message>& messages) const;
};

// The answers to all prompts: one is printed as it grows, several when they are ready. Then, on
// stderr, tokens per second; with --json, ids, texts and figures.
Task<void> generate(World& world, const Speaker& speaker);
// Reads lines of rank 0's stdin, and answers each, to the end of the file.
Task<void> chat(World& world, const Speaker& speaker);

}  // namespace coshard::llama
