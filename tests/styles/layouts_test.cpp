// What styles say of inputs and outputs.
#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>
#include <coshard/styles/colwise.h>
#include <coshard/styles/layouts.h>
#include <coshard/styles/no_parallel.h>
#include <coshard/styles/prepare_input.h>
#include <coshard/styles/prepare_output.h>
#include <coshard/styles/rowwise.h>
#include <coshard/styles/sequence.h>
#include "tests/support/grouped_numbers.h"

namespace coshard {
namespace {

template <class T>
std::string text(const T& value) {
  return str_cat(value);
}

TEST(StyleLayouts, OnePlacementOrAListWithGaps) {
  EXPECT_FALSE(Placements().given());
  const Placements one = Shard(1);
  EXPECT_TRUE(one.given());
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(*one[0], Shard(1));
  const Placements list = {Shard(0), std::nullopt};
  EXPECT_EQ(list.size(), 2U);
  EXPECT_FALSE(list[1].has_value());
  EXPECT_EQ(text(list), "(S(0), None)");
  EXPECT_EQ(text(one).find("S(1)") != std::string::npos, true);
}

TEST(StyleLayouts, APositionOutOfRangeIsRefused) {
  const Placements one = Shard(1);
  EXPECT_EQ(one[0], Shard(1));
  EXPECT_THROW(one[1], Error);
  EXPECT_THROW(Placements()[0], Error);
}

TEST(StyleLayouts, KeywordsAreFoundByName) {
  const KeywordPlacements keywords = {{"mask", Shard(0)}, {"bias", std::nullopt}};
  EXPECT_TRUE(keywords.has("bias"));
  EXPECT_FALSE(keywords.has("mas"));
  EXPECT_EQ(keywords.of("mask"), Shard(0));
  EXPECT_EQ(keywords.of("bias"), std::nullopt);
  EXPECT_EQ(keywords.of("none"), std::nullopt);
  EXPECT_NE(text(keywords).find("mask: S(0)"), std::string::npos);
  EXPECT_FALSE(KeywordPlacements().given());
}

TEST(StyleLayouts, ANameOf47CharactersFitsAndALongerOneIsRefused) {
  const std::string longest(47, 'x');
  EXPECT_EQ(KeywordPlacements::Entry(longest, Shard(0)).name(), longest);
  EXPECT_THROW(KeywordPlacements::Entry(longest + 'x', Shard(0)), Error);
}

// The stream is the program's; what it prints next is as it was.
TEST(StyleLayouts, StylesAreShownAlikeInEveryLocale) {
  const testing::GroupedNumbers grouped;
  std::ostringstream out;
  out << ColwiseParallel() << RowwiseParallel() << NoParallel() << PrepareModuleInput()
      << PrepareModuleOutput();
  EXPECT_NE(out.str().find("use_local_output=true"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("use_local_output=false"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("ja"), std::string::npos) << out.str();
  out.str("");
  SequenceParallel style;
  style.sequence_dim = 1024;
  out << style << true;
  EXPECT_NE(out.str().find("sequence_dim=1024,"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().back(), '1');
}

}  // namespace
}  // namespace coshard
