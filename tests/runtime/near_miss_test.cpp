#include "runtime/near_miss.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

const std::vector<std::string> kKnown = {"--ranks", "--threads", "--rank-threads", "--device",
                                         "train"};

TEST(NearMiss, IsTheNameWithTheFewestEdits) {
  EXPECT_EQ(near_miss("--rank", kKnown), "--ranks");
  EXPECT_EQ(near_miss("--ranks-threads", kKnown), "--rank-threads");
  EXPECT_EQ(near_miss("trian", kKnown), "train");
}

TEST(NearMiss, IsTheOnlyNameThatBeginsWithTheWord) {
  EXPECT_EQ(near_miss("--dev", kKnown), "--device");
}

TEST(NearMiss, IsNothingForAWordThatIsFarFromAll) {
  EXPECT_EQ(near_miss("--steps", kKnown), "");
  EXPECT_EQ(near_miss("bogus", kKnown), "");
  EXPECT_EQ(near_miss("-d", kKnown), "");
  EXPECT_EQ(near_miss("--", kKnown), "");
}

TEST(NearMiss, KnownNamesAreJoinedAsInASentence) {
  EXPECT_EQ(joined({}), "");
  EXPECT_EQ(joined({"a"}), "a");
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace coshard
