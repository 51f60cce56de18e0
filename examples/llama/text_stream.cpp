#include <utility>

#include "examples/llama/tokenizer.h"
#include "examples/llama/utf8.h"

namespace coshard::llama {

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string TextStream::next(std::int64_t id) {
  held_ += tokenizer_.bytes_of(id, skip_special_);
  std::size_t unfinished = 0;
  std::string text = valid_utf8(held_, &unfinished);
  held_.erase(0, held_.size() - unfinished);
  return text;
}

std::string TextStream::rest() { return valid_utf8(std::exchange(held_, {})); }

}  // namespace coshard::llama
