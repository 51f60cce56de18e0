#include "examples/llama/pre_tokenizer.h"

#include <utility>

#include <coshard/runtime/error.h>
#include "examples/llama/utf8.h"

namespace coshard::llama {
namespace {

// Of GPT-2: contractions, then words, numbers and other characters with the space before them.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior behavior_of(JsonObject& stage) {
  const std::string name = stage.text("behavior");
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  stage.refuse("behavior",
               "is none of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

Regex regex_of(JsonObject& stage) {
  JsonObject pattern = stage.object("pattern");
  const std::string what = str_cat(pattern.file(), ": ", stage.path_of("pattern"));
  const bool is_text = pattern.find("String") != nullptr;
  Regex made = is_text ? Regex::of_text(pattern.text("String"), what)
                       : Regex::of_pattern(pattern.text("Regex"), what);
  pattern.finish();
  return made;
}

}  // namespace

// What a stage has found: a match, or what lies between two.
struct SplitStage::Part {
  std::size_t begin, end;
  bool is_match;
};

SplitStage::SplitStage(Regex regex, SplitBehavior behavior, bool invert)
    : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

SplitStage SplitStage::of_digits(bool individual) {
  SplitStage made;
  made.by_digits_ = true;
  made.behavior_ = individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous;
  return made;
}

SplitStage SplitStage::of_bytes(std::optional<Regex> regex, bool add_prefix_space) {
  SplitStage made;
  made.regex_ = std::move(regex);
  made.add_prefix_space_ = add_prefix_space;
  return made;
}

void SplitStage::each(std::string_view text, const WordSink& sink) const {
  if (text.empty()) return;
  if (by_digits_) return each_digit(text, sink);
  if (!add_prefix_space_ || text.starts_with(' ')) return cut(text, sink);
  const std::string with_space = str_cat(" ", text);
  cut(with_space, sink);
}

void SplitStage::each_digit(std::string_view text, const WordSink& sink) const {
  const bool individual = behavior_ == SplitBehavior::Isolated;
  std::size_t begin = 0;
  bool of_digits = false;  // what begins there
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool is_ascii = byte < 0x80;
    const Character next = is_ascii ? Character{byte, 1} : first_character(text.substr(at));
    const bool is_digit = is_ascii ? byte >= '0' && byte <= '9' : is_number(next.code);
    if (at > begin && (is_digit != of_digits || (is_digit && individual))) {
      sink(text.substr(begin, at - begin));
      begin = at;
    }
    of_digits = is_digit;
    at += next.bytes;
  }
  sink(text.substr(begin));
}

// As Oniguruma's iterator in `tokenizers`: an empty match right behind the last one does not count.
void SplitStage::each_match(
    std::string_view text, const std::function<void(std::size_t, std::size_t, bool)>& found) const {
  std::size_t from = 0, end = 0;
  bool has_last = false;
  while (from <= text.size()) {
    const std::optional<Match> match = regex_->find(text, from);
    if (!match) break;
    if (match->begin == match->end && has_last && match->end == end) {
      if (from == text.size()) break;
      from += first_character(text.substr(from)).bytes;
      continue;
    }
    if (match->begin > end) found(end, match->begin, false);
    found(match->begin, match->end, true);
    from = end = match->end;
    has_last = true;
  }
  if (end < text.size()) found(end, text.size(), false);
}

void SplitStage::cut(std::string_view text, const WordSink& sink) const {
  const auto give = [&](std::size_t begin, std::size_t end) {
    if (end > begin) sink(text.substr(begin, end - begin));
  };
  if (!regex_) return sink(text);
  if (behavior_ == SplitBehavior::Isolated || behavior_ == SplitBehavior::Removed) {
    each_match(text, [&](std::size_t begin, std::size_t end, bool is_match) {
      if (behavior_ == SplitBehavior::Isolated || is_match == invert_) give(begin, end);
    });
    return;
  }
  std::vector<Part> parts;
  each_match(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    parts.push_back({begin, end, is_match != invert_});
  });
  // Whether a part is one piece with the part before it.
  const auto belongs_to_last = [&](std::size_t i) {
    const bool now = parts[i].is_match, last = parts[i - 1].is_match;
    if (behavior_ == SplitBehavior::Contiguous) return now == last;
    return behavior_ == SplitBehavior::MergedWithPrevious ? now && !last : last && !now;
  };
  for (std::size_t i = 0, begin = 0; i < parts.size(); ++i) {
    if (i > 0 && !belongs_to_last(i)) begin = parts[i].begin;
    if (i + 1 == parts.size() || !belongs_to_last(i + 1)) give(begin, parts[i].end);
  }
}

PreTokenizer PreTokenizer::of_json(JsonObject& tokenizer) {
  PreTokenizer made;
  made.add(tokenizer.object("pre_tokenizer"));
  if (!made.has_bytes_)
    tokenizer.refuse("pre_tokenizer", "has no ByteLevel; only byte-level BPE is supported");
  return made;
}

void PreTokenizer::add(JsonObject stage) {
  const std::string type = stage.text("type");
  if (has_bytes_)
    stage.refuse("type", "comes after ByteLevel, which is supported as the last alone");
  if (type == "Sequence") {
    const Json& list = stage.need("pretokenizers");
    if (!list.is_array()) stage.refuse("pretokenizers", "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i)
      add({list[i], stage.file(), stage.path_of(str_cat("pretokenizers[", i, "]"))});
  } else if (type == "Split") {
    Regex regex = regex_of(stage);
    const SplitBehavior behavior = behavior_of(stage);
    stages_.emplace_back(std::move(regex), behavior, stage.flag("invert"));
  } else if (type == "Digits") {
    stages_.push_back(SplitStage::of_digits(stage.flag("individual_digits")));
  } else if (type == "ByteLevel") {
    adds_space_ = stage.flag("add_prefix_space");
    std::optional<Regex> regex;
    if (stage.flag("use_regex", true)) regex = Regex::of_pattern(kGpt2, stage.file());
    stages_.push_back(SplitStage::of_bytes(std::move(regex), adds_space_));
    stage.skip({"trim_offsets"});  // offsets are not asked for
    has_bytes_ = true;
  } else {
    stage.refuse("type", "is none of Sequence, Split, Digits and ByteLevel");
  }
  stage.finish();
}

void PreTokenizer::each_word(std::string_view text, const WordSink& sink) const {
  std::vector<std::string_view> pieces{text}, smaller;
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) {
    smaller.clear();
    for (const std::string_view piece : pieces)
      stages_[i].each(piece, [&](std::string_view part) { smaller.push_back(part); });
    pieces.swap(smaller);
  }
  for (const std::string_view piece : pieces) stages_.back().each(piece, sink);
}

}  // namespace coshard::llama
