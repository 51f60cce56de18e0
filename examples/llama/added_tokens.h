#pragma once
// Tokens that are found in the text before it is cut into words: `added_tokens` of tokenizer.json.
// Immutable once read; any thread.
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/llama/bpe.h"
#include "examples/llama/json_object.h"

namespace coshard::llama {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;                 // left out by decode where that is asked for
  bool single_word = false;             // found only where no letter or digit is beside it
  bool lstrip = false, rstrip = false;  // takes the white space before it, or behind it
  bool normalized = false;              // found in the normalized text
};

// Error{BadInput}: another key; no content; twice; an id that `tokenizers` would not give it: that of
// the vocabulary, else the next free one.
std::vector<AddedToken> added_tokens_of(JsonObject& tokenizer, const Vocabulary& vocabulary);

// Finds tokens in texts: the leftmost, and of several there the longest.
class TokenFinder {
 public:
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  using TextSink = std::function<void(std::string_view)>;
  using TokenSink = std::function<void(std::int32_t)>;
  // Calls `text` with what lies between tokens, if it is not empty, and `token` with ids, in their order.
  void split(std::string_view all, const TextSink& text, const TokenSink& token) const;

 private:
  const AddedToken* at(std::string_view text) const;
  std::vector<AddedToken> tokens_;
  std::array<std::vector<std::uint32_t>, 256> by_first_byte_;  // the longest first
};

}  // namespace coshard::llama
