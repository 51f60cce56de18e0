// Oniguruma's expressions in PCRE2's words, and what is refused since the two differ.
#include "examples/llama/regex.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard::llama {
namespace {

TEST(Regex, SpacesAreThoseOfUnicode) {
  const Regex space = Regex::of_pattern(R"(\s)", "f"), other = Regex::of_pattern(R"(\S+)", "f");
  for (const char* text : {" ", "\t", "\r", "\u0085", "\u00a0", "\u1680", "\u2028", "\u3000"}) {
    EXPECT_TRUE(space.find(text, 0)) << text;
    EXPECT_FALSE(other.find(text, 0)) << text;
  }
  for (const char* text : {"a", "\u180e", "\u200b", "\x1c"})
    EXPECT_FALSE(space.find(text, 0)) << text;
}

TEST(Regex, MatchesFromAPlaceOn) {
  const Regex word = Regex::of_pattern(R"(\p{L}+)", "f");
  const auto match = word.find("ab éd", 2);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 3U);
  EXPECT_EQ(match->end, 6U);
  EXPECT_FALSE(word.find("ab 1", 2));
}

TEST(Regex, ATextIsNoPattern) {
  EXPECT_TRUE(Regex::of_text("a.(", "f").find("xa.(", 0));
  EXPECT_FALSE(Regex::of_text("a.", "f").find("ab", 0));
}

TEST(Regex, WhatTheLibrariesReadDifferentlyIsRefused) {
  for (const char* pattern :
       {R"(\w)",   R"(\b)",       R"(\h)",    R"(\v)",   R"(\1)", R"(\x41)", R"(\p{Han})", R"(\pL)",
        R"([\S])", "[[:alpha:]]", "[a&&b]",   "a{2}+",   "a{,3}", "a{2,3}?", "^a",         "a$",
        "(?i)a",   "(?<n>a)",     "(?P<n>a)", "(*FAIL)", "[a",    "a\\"})
    EXPECT_THROW(pcre2_pattern(pattern, "f"), Error) << pattern;
  EXPECT_THROW(Regex::of_pattern("(a", "f"), Error);
}

TEST(Regex, RunawayExpressionsEndWithAnError) {
  const Regex slow = Regex::of_pattern("(?:(?:a+)+)+[bc]", "f");
  EXPECT_THROW(static_cast<void>(slow.find(std::string(40, 'a'), 0)), Error);
}

}  // namespace
}  // namespace coshard::llama
