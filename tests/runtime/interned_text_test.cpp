#include "runtime/interned_text.h"

#include <gtest/gtest.h>

#include <cstring>

namespace coshard {
namespace {

TEST(InternedText, IsTheSameForEqualTexts) {
  const std::string_view one = interned("a text");
  EXPECT_EQ(one, "a text");
  EXPECT_EQ(one.data(), interned(std::string("a ") + "text").data());
  EXPECT_NE(one.data(), interned("another").data());
  EXPECT_EQ(std::strlen(one.data()), one.size());
}

}  // namespace
}  // namespace coshard
