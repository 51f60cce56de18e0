// What each stage cuts, in the words of `tokenizers`.
#include "examples/llama/pre_tokenizer.h"

#include "tests/examples/llama/json_text.h"

namespace coshard::llama {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& pre_tokenizer, std::string_view text) {
  const Json json = nn::parse_config(R"({"pre_tokenizer":)" + pre_tokenizer + "}", "f");
  JsonObject object(json, "f", "");
  Words words;
  PreTokenizer::of_json(object).each_word(text,
                                          [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::string staged(const std::string& stage) {
  return R"({"type":"Sequence","pretokenizers":[)" + stage +
         R"(,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}

Words split(const char* behavior, bool invert, const char* pattern = R"({"Regex":"[xy]"})") {
  return words_of(staged(str_cat(R"({"type":"Split","pattern":)", pattern, R"(,"behavior":")",
                                 behavior, R"(","invert":)", invert ? "true}" : "false}")),
                  "axybyc");
}

TEST(PreTokenizer, ByteLevelCutsAsGpt2) {
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false})";
  EXPECT_EQ(words_of(bytes, "It's  12 a\n b!?"),
            (Words{"It", "'s", " ", " 12", " a", "\n", " b", "!?"}));
  EXPECT_EQ(words_of(R"({"type":"ByteLevel","add_prefix_space":true})", "a b"),
            (Words{" a", " b"}));
}

TEST(PreTokenizer, DigitsAloneOrTogether) {
  const auto digits = [](const char* individual) {
    return words_of(staged(str_cat(R"({"type":"Digits","individual_digits":)", individual, "}")),
                    "a12½b٣");
  };
  EXPECT_EQ(digits("true"), (Words{"a", "1", "2", "½", "b", "٣"}));
  EXPECT_EQ(digits("false"), (Words{"a", "12½", "b", "٣"}));
}

TEST(PreTokenizer, SplitBehaviors) {
  EXPECT_EQ(split("Isolated", false), (Words{"a", "x", "y", "b", "y", "c"}));
  EXPECT_EQ(split("Removed", false), (Words{"a", "b", "c"}));
  EXPECT_EQ(split("Removed", true), (Words{"x", "y", "y"}));
  EXPECT_EQ(split("MergedWithPrevious", false), (Words{"ax", "y", "by", "c"}));
  EXPECT_EQ(split("MergedWithNext", false), (Words{"a", "x", "yb", "yc"}));
  EXPECT_EQ(split("Contiguous", false), (Words{"a", "xy", "b", "y", "c"}));
  EXPECT_EQ(split("Isolated", false, R"({"String":"xy"})"), (Words{"a", "xy", "byc"}));
}

TEST(PreTokenizer, OtherStagesAreRefused) {
  const auto refused = [](const std::string& pre, std::initializer_list<std::string_view> words) {
    expect_refused(tokenizer_text("", "", pre), words);
  };
  refused(R"({"type":"Whitespace"})", {"pre_tokenizer.type", "Whitespace"});
  refused("null", {"pre_tokenizer"});
  refused(R"({"type":"Digits","individual_digits":true})", {"ByteLevel"});
  refused(R"({"type":"ByteLevel","add_prefix_space":false,"other":1})", {"other", "1"});
  refused(R"({"type":"ByteLevel"})", {"add_prefix_space"});
  refused(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false},
             {"type":"Digits","individual_digits":true}]})",
          {"pretokenizers[1]", "Digits"});
  refused(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Kept","invert":false})", {"Kept"});
}

}  // namespace
}  // namespace coshard::llama
