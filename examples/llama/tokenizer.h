#pragma once
// The tokenizer of a Hugging Face folder: byte-level byte pair encoding, as in GPT-2, Llama 3, Qwen2
// and SmolLM2. Ids are those of the library `tokenizers`.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coshard::llama {

// A value; copies share what was read. Any thread; those that encode take turns.
class Tokenizer {
 public:
  // folder/tokenizer.json. Error{BadInput}, one line with file, key and value: it cannot be read; what
  // changes the result and is not supported, such as Unigram, WordPiece, byte_fallback or truncation;
  // files beside it that say otherwise (check_files_beside).
  static Tokenizer open(const std::string& folder);
  // `file` names it in errors.
  static Tokenizer of_text(const std::string& json, const std::string& file);

  // `with_special`: with what the post_processor adds, such as the beginning of a sequence. Leave it
  // out where a chat template has written that. Added tokens in the text are always recognised.
  // Error{BadInput}: the text is not UTF-8, or has 2^31 bytes; a regular expression gave up.
  std::vector<std::int64_t> encode(std::string_view text, bool with_special = true) const;

  // Text in UTF-8; bytes that are none become U+FFFD. An id without a token gives no text, as in
  // `tokenizers`. `skip_special`: nor does a special token.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = false) const;

  // Of a token as its file spells it: "<|im_end|>", "Ġthe".
  std::optional<std::int64_t> id_of(std::string_view token) const;
  std::int64_t size() const;  // tokens of the vocabulary and added ones

 private:
  friend class TextStream;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<Parts> parts);
  std::string_view bytes_of(std::int64_t id, bool skip_special) const;
  std::shared_ptr<Parts> parts_;
};

// The text of tokens that come one by one: what is given ends with a whole character. All of it and rest() are
// what decode() gives.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, bool skip_special);
  std::string next(std::int64_t id);  // what can be printed now; it may be empty
  std::string rest();  // at the end: a character of which a part is missing is U+FFFD

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string held_;  // bytes of a character that is not whole yet
};

}  // namespace coshard::llama
