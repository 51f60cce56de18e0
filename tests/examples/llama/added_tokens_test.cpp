// Tokens that are found in the text, by their flags.
#include "examples/llama/added_tokens.h"

#include "tests/examples/llama/json_text.h"

namespace coshard::llama {
namespace {

// "text|<id>|text"
std::string parts_of(const std::vector<AddedToken>& tokens, std::string_view text) {
  TokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
  std::string parts;
  finder.split(
      text, [&](std::string_view part) { parts += str_cat("|", part); },
      [&](std::int32_t id) { parts += str_cat("|<", id, ">"); });
  return parts;
}

TEST(AddedTokens, TheLongestOfTheLeftmost) {
  EXPECT_EQ(parts_of({{"ab", 1}, {"abc", 2}, {"bcd", 3}}, "xabcdab"), "|x|<2>|d|<1>");
  EXPECT_EQ(parts_of({}, "x"), "|x");
}

TEST(AddedTokens, TakeTheSpaceBeside) {
  EXPECT_EQ(parts_of({{.content = "m", .id = 1, .lstrip = true}}, "a  m b"), "|a|<1>| b");
  EXPECT_EQ(parts_of({{.content = "m", .id = 1, .rstrip = true}}, "a m \n b"), "|a |<1>|b");
}

TEST(AddedTokens, SingleWords) {
  const std::vector<AddedToken> tokens{{.content = "w", .id = 1, .single_word = true}};
  EXPECT_EQ(parts_of(tokens, "w aw wé (w)"), "|<1>| aw wé (|<1>|)");
}

TEST(AddedTokens, ListsThatContradictThemselvesAreRefused) {
  const auto with = [](const std::string& content, const std::string& id) {
    return tokenizer_text("", R"(,"added_tokens":[{"id":)" + id + R"(,"content":")" + content +
                                  R"(","special":true,"single_word":false,"lstrip":false,)"
                                  R"("rstrip":false,"normalized":false}])");
  };
  EXPECT_EQ(Tokenizer::of_text(with("<s>", "7"), "f").encode("<s>").at(0), 7);
  EXPECT_EQ(Tokenizer::of_text(with("abc", "4"), "f").encode("abc").at(0), 4);
  expect_refused(with("<s>", "9"), {"added_tokens[0]", "<s>", "9", "7"});
  expect_refused(with("abc", "7"), {"added_tokens[0]", "abc", "4"});
  expect_refused(with("", "7"), {"content"});
  expect_refused(tokenizer_text("", R"(,"added_tokens":[{"id":7,"content":"x"}])"), {"special"});
}

}  // namespace
}  // namespace coshard::llama
