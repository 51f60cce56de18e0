// Files beside tokenizer.json that would change ids; tests/hf asks transformers.
#include "examples/llama/tokenizer_config.h"

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/examples/llama/json_text.h"

namespace coshard::llama {
namespace {

using testing::message_of;
using testing::ScratchFolder;

class FilesBeside : public ::testing::Test {
 protected:
  // What is said of a folder that has this file beside a tokenizer with the added token <s>.
  std::string refusal_of(const char* file, const std::string& text) const {
    const ScratchFolder folder;
    folder.write("tokenizer.json",
                 tokenizer_text("", R"(,"added_tokens":[{"id":7,"content":"<s>","special":true,
                   "single_word":false,"lstrip":false,"rstrip":false,"normalized":false}])"));
    folder.write(file, text);
    return message_of([&] { Tokenizer::open(folder.path("")); });
  }
  std::string refusal_of_config(const std::string& text) const {
    return refusal_of("tokenizer_config.json", text);
  }
};

TEST_F(FilesBeside, WhatAgreesIsTaken) {
  EXPECT_EQ(refusal_of_config(R"({"bos_token":"<s>","eos_token":{"content":"<s>"},
    "add_bos_token":true,"pad_token":null,"add_prefix_space":false,"split_special_tokens":false,
    "extra_special_tokens":{"image_token":"<s>"},"additional_special_tokens":["<s>"],
    "added_tokens_decoder":{"7":{"content":"<s>","special":true,"normalized":true}}})"),
            "");
  EXPECT_EQ(refusal_of("special_tokens_map.json", R"({"bos_token":"<s>"})"), "");
  EXPECT_EQ(refusal_of("added_tokens.json", R"({"<s>":7})"), "");
}

TEST_F(FilesBeside, TokensThatTokenizerJsonLacksAreRefused) {
  for (const char* text :
       {R"({"eos_token":"<e>"})", R"({"image_token":{"content":"<e>"}})",
        R"({"extra_special_tokens":["<e>"]})", R"({"additional_special_tokens":["<e>"]})",
        R"({"extra_special_tokens":{"x":"<e>"}})",
        R"({"added_tokens_decoder":{"8":{"content":"<e>"}}})"}) {
    const std::string refusal = refusal_of_config(text);
    EXPECT_CONTAINS(refusal, "tokenizer_config.json: ");
    EXPECT_CONTAINS(refusal, "<e>");
    EXPECT_CONTAINS(refusal, "no added token");
  }
  EXPECT_CONTAINS(refusal_of("special_tokens_map.json", R"({"eos_token":"<e>"})"),
                  "special_tokens_map.json: eos_token \"<e>\"");
  EXPECT_CONTAINS(refusal_of("added_tokens.json", R"({"<e>":8})"), "added_tokens.json: <e>");
}

TEST_F(FilesBeside, TokensThatDifferAreRefused) {
  EXPECT_CONTAINS(refusal_of_config(R"({"added_tokens_decoder":{"7":{"content":"<s>",
                    "special":true,"lstrip":true}}})"),
                  "added_tokens_decoder.7");
  EXPECT_CONTAINS(refusal_of_config(R"({"added_tokens_decoder":{"6":{"content":"<s>",
                    "special":true}}})"),
                  "added_tokens_decoder.6");
  EXPECT_CONTAINS(refusal_of("added_tokens.json", R"({"<s>":8})"), "<s> 8 is another id");
}

TEST_F(FilesBeside, OptionsThatChangeIdsAreRefused) {
  EXPECT_CONTAINS(refusal_of_config(R"({"split_special_tokens":true})"),
                  "split_special_tokens true");
  EXPECT_CONTAINS(
      refusal_of_config(R"({"add_prefix_space":true,"tokenizer_class":"GPT2Tokenizer"})"),
      "add_prefix_space is 1");
  EXPECT_EQ(refusal_of_config(R"({"add_prefix_space":true,
              "tokenizer_class":"PreTrainedTokenizerFast"})"),
            "");
  EXPECT_CONTAINS(refusal_of_config("[]"), "tokenizer_config.json");
}

}  // namespace
}  // namespace coshard::llama
