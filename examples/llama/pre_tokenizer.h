#pragma once
// What cuts a text into words, within which byte-level BPE merges: `pre_tokenizer` of tokenizer.json.
// One thread at a time.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/llama/json_object.h"
#include "examples/llama/regex.h"

namespace coshard::llama {

// What becomes of the matches of a Split, in the words of `tokenizers`.
enum class SplitBehavior : std::uint8_t {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous,
};

using WordSink = std::function<void(std::string_view)>;

// One stage: cuts a piece into smaller ones.
class SplitStage {
 public:
  SplitStage(Regex regex, SplitBehavior behavior, bool invert = false);
  static SplitStage of_digits(bool individual);
  // The last stage; without a regex it cuts nothing.
  static SplitStage of_bytes(std::optional<Regex> regex, bool add_prefix_space);

  // Calls `sink` with each piece that is not empty, in their order. They are views of `text`, or of a copy that
  // ends with the call if a space is added in front.
  void each(std::string_view text, const WordSink& sink) const;

 private:
  SplitStage() = default;
  struct Part;
  void each_match(std::string_view text,
                  const std::function<void(std::size_t, std::size_t, bool)>& found) const;
  void each_digit(std::string_view text, const WordSink& sink) const;
  void cut(std::string_view text, const WordSink& sink) const;

  std::optional<Regex> regex_;
  SplitBehavior behavior_ = SplitBehavior::Isolated;
  bool invert_ = false, by_digits_ = false, add_prefix_space_ = false;
};

class PreTokenizer {
 public:
  // Sequences of Split, Digits and, as the last stage, ByteLevel. Error{BadInput}: another type, key
  // or value; no ByteLevel, or a stage behind it.
  static PreTokenizer of_json(JsonObject& tokenizer);

  void each_word(std::string_view text, const WordSink& sink) const;
  bool adds_space() const { return adds_space_; }  // in front of a text

 private:
  void add(JsonObject stage);
  std::vector<SplitStage> stages_;
  bool has_bytes_ = false, adds_space_ = false;
};

}  // namespace coshard::llama
