// UTF-8: what is valid, what stands for the rest, and properties of characters.
#include "examples/llama/utf8.h"

#include <gtest/gtest.h>

#include "examples/llama/byte_alphabet.h"

namespace coshard::llama {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";

TEST(Utf8, InvalidBytesBecomeReplacements) {
  const std::string r = kReplacement;
  EXPECT_EQ(valid_utf8("a\xff\x80z"), "a" + r + r + "z");
  EXPECT_EQ(valid_utf8("\xe2\x82z"), r + "z");               // one for a valid beginning
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(valid_utf8("\xc0\x80"), r + r);                  // overlong
  EXPECT_EQ(valid_utf8("é😀"), "é😀");
}

TEST(Utf8, UnfinishedEndsAreLeftOut) {
  std::size_t left = 0;
  EXPECT_EQ(valid_utf8("a\xf0\x9f\x98", &left), "a");
  EXPECT_EQ(left, 3U);
  EXPECT_EQ(valid_utf8("a\xff", &left), std::string("a") + kReplacement);
  EXPECT_EQ(left, 0U);
}

TEST(Utf8, TellsWhereTextIsInvalid) {
  EXPECT_EQ(invalid_utf8("é\xff"), 2U);
  EXPECT_EQ(invalid_utf8("é"), std::string_view::npos);
}

TEST(Utf8, Nfc) {
  EXPECT_EQ(nfc("e\u0301 \u1112\u1161\u11ab"), "é \ud55c");
  EXPECT_EQ(nfc("abc"), "abc");
}

TEST(Utf8, Properties) {
  EXPECT_TRUE(is_word('a') && is_word('5') && is_word('_') && is_word(0xe9) && is_word(0x24b6));
  EXPECT_FALSE(is_word('-') || is_word(' ') || is_word(0x1f600));
  EXPECT_TRUE(is_number('0') && is_number(0xbd) && is_number(0x2160) && !is_number('a'));
}

TEST(ByteAlphabet, EachByteHasACharacterOfItsOwn) {
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(bytes_of_token(byte_alphabet()[static_cast<std::size_t>(byte)]),
              std::string(1, static_cast<char>(byte)));
  EXPECT_EQ(bytes_of_token("Ġthe"), " the");
  EXPECT_EQ(bytes_of_token("世"), std::nullopt);
}

}  // namespace
}  // namespace coshard::llama
