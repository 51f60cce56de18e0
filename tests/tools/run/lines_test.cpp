#include "tools/run/lines.h"

#include <gtest/gtest.h>

#include <string>

namespace coshard::job {
namespace {

Lines::Write to(std::string& text) {
  return [&text](std::string_view lines) { text += lines; };
}

TEST(Lines, ComeWholeHoweverTheyAreWritten) {
  std::string out;
  Lines lines("[1] ", to(out));
  lines.add("a");
  EXPECT_EQ(out, "");
  lines.add("b\nc\n\nd");
  EXPECT_EQ(out, "[1] ab\n[1] c\n[1] \n");
  lines.add("\n");
  EXPECT_EQ(out, "[1] ab\n[1] c\n[1] \n[1] d\n");
  lines.end();
  EXPECT_EQ(out, "[1] ab\n[1] c\n[1] \n[1] d\n");
}

TEST(Lines, OfTwoRanksDoNotMix) {
  std::string out;
  Lines zero("[0] ", to(out)), one("[1] ", to(out));
  zero.add("a");
  one.add("b\n");
  zero.add("c\n");
  EXPECT_EQ(out, "[1] b\n[0] ac\n");
}

TEST(Lines, ALastLineWithoutNewlineGetsOneOnlyAfterAPrefix) {
  std::string with, without;
  Lines prefixed("[0] ", to(with)), bare("", to(without));
  for (Lines* lines : {&prefixed, &bare}) {
    lines->add("a\nb");
    lines->end();
    lines->end();
  }
  EXPECT_EQ(with, "[0] a\n[0] b\n");
  EXPECT_EQ(without, "a\nb");
}

TEST(Lines, OneThatDoesNotEndIsWrittenAfterAMebibyte) {
  std::string out;
  Lines lines("", to(out));
  for (int i = 0; i < 33; ++i) lines.add(std::string(1 << 15, 'x'));
  EXPECT_EQ(out, std::string(33 << 15, 'x'));
}

}  // namespace
}  // namespace coshard::job
