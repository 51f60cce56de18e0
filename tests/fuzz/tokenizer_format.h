#pragma once
// tokenizer.json for its fuzzer and for the test that replays its corpus, as formats.h. Any thread.
#include "examples/llama/tokenizer.h"
#include "tests/fuzz/formats.h"

namespace coshard::testing {

// What is taken encodes a text, and decodes its ids whole or one by one alike.
inline bool read_tokenizer(std::string_view bytes) {
  return is_taken([&] {
    constexpr std::string_view kText = "It's  12 caf\u00e9s\n\u3000e\u0301<s> ab \U0001f600";
    const llama::Tokenizer tokenizer = llama::Tokenizer::of_text(std::string(bytes), "f");
    const std::vector<std::int64_t> ids = tokenizer.encode(kText);
    llama::TextStream stream(tokenizer, false);
    std::string text;
    for (const std::int64_t id : ids) text += stream.next(id);
    require_of_format(text + stream.rest() == tokenizer.decode(ids), "text");
    tokenizer.decode(ids, true);
  });
}

}  // namespace coshard::testing
