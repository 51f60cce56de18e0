#include "profiling/child_process.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

TEST(OutputOf, GivesWhatTheProgramPrints) {
  EXPECT_EQ(output_of({"printf", "%s-%s", "a b", "c"}).value_or("nothing"), "a b-c");
}

TEST(OutputOf, IsNothingForAProgramThatDoesNotExist) {
  EXPECT_FALSE(output_of({"coshard-has-no-such-program"}));
}

TEST(OutputOf, IsNothingForAProgramThatFails) { EXPECT_FALSE(output_of({"false"})); }

TEST(OutputOf, TakesMoreThanAPipeHolds) {
  EXPECT_EQ(output_of({"head", "-c", "1000000", "/dev/zero"}).value_or("").size(), 1'000'000U);
}

TEST(OutputOf, FeedsTheInputHoweverLongAndHoweverMuchIsRead) {
  const std::string input = std::string(300'000, 'a') + "\nend";
  EXPECT_EQ(output_of({"cat"}, input).value_or("nothing"), input);
  EXPECT_EQ(output_of({"head", "-c", "3"}, input).value_or("nothing"), "aaa");
  EXPECT_EQ(output_of({"true"}, input), "");
  EXPECT_EQ(output_of({"cat"}), "");
}

}  // namespace
}  // namespace coshard
