#pragma once
// Tokenizers as JSON texts, and the errors of reading them.
#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>
#include "examples/llama/tokenizer.h"

namespace coshard::llama {

// Of the tokens a, b, c, ab, abc, Ġ, Ġa; `more`: members that replace or follow these, each with a comma in front.
inline std::string tokenizer_text(
    const std::string& model = "", const std::string& more = "",
    const std::string& pre = R"({"type":"ByteLevel","add_prefix_space":false})") {
  return R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,"decoder":{"type":"ByteLevel"},"pre_tokenizer":)" +
         pre +
         R"(,"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"Ġ":5,"Ġa":6},"merges":["a b",["ab","c"],"Ġ a"])" +
         model + "}" + more + "}";
}

// Expects a refusal of one line that has all of these.
inline void expect_refused(const std::string& json, std::initializer_list<std::string_view> words) {
  try {
    Tokenizer::of_text(json, "f");
    ADD_FAILURE() << "taken: " << json;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    const std::string text = error.message();
    EXPECT_TRUE(text.starts_with("f: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string_view word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

}  // namespace coshard::llama
