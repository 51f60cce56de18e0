#pragma once
// What stands beside tokenizer.json and changes ids as well. Any thread.
#include <span>
#include <string>

#include "examples/llama/added_tokens.h"

namespace coshard::llama {

// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json, those that are there.
// `own`: what the folder's tokenizer.json says. Error{BadInput}, one line with file, key and value: a
// special or added token that is not in `own.added`, or differs there; split_special_tokens; another
// add_prefix_space, of classes that take it from here (GPT2Tokenizer, Qwen2Tokenizer).
struct TokenizerFacts {
  std::span<const AddedToken> added;
  bool adds_space;  // in front of a text
  bool normalizes;
};
void check_files_beside(const std::string& folder, const TokenizerFacts& own);

}  // namespace coshard::llama
