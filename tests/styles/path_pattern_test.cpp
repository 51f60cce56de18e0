// Patterns of module paths, and the names that are suggested.
#include <coshard/styles/parallelize.h>

#include "styles/path_pattern.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(PathPattern, MatchesPartByPart) {
  EXPECT_TRUE(matches("layers.*.net[12]", "layers.10.net2"));
  EXPECT_TRUE(matches("net?", "net1"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "net1"));
  EXPECT_FALSE(matches("layers.*", "layers.0.net1"));
  EXPECT_FALSE(matches("*", "layers.0"));
  EXPECT_FALSE(matches("net[1-2]", "net3"));
}

TEST(PathPattern, OfAPathHasAnyNumber) {
  EXPECT_EQ(pattern_of_numbers("layers.10.w2.0"), "layers.*.w2.*");
  EXPECT_EQ(pattern_of_numbers("model.layers.3."), "model.layers.*.");
}

TEST(PathPattern, RanksNamesByTheEditsThatAreLeft) {
  const std::vector<std::string> names = {"norm", "layers.0.mlp", "layers.0.attn", "layers.1.attn"};
  const std::vector<std::string> want = {"layers.0.attn", "layers.1.attn"};
  EXPECT_EQ(nearest("layers.*.atn", names, 2), want);
}

// One edit each, then two, then three: names that are as near keep their order.
TEST(PathPattern, CountsInsertionsDeletionsAndReplacementsAlike) {
  const std::vector<std::string> names = {"bcdx", "axxd", "abc", "abcde", "abxd", "xabcd", "abcd"};
  const std::vector<std::string> want = {"abcd", "abc", "abcde", "abxd", "xabcd", "bcdx", "axxd"};
  EXPECT_EQ(nearest("abcd", names, 9), want);
  EXPECT_EQ(nearest("abcd", names, 1), std::vector<std::string>{"abcd"});
}

TEST(PathPattern, PartsThatMatchCostNothingAndOtherLengthsAreComparedWhole) {
  const std::vector<std::string> names = {"layers.10.mlp", "layers.mlp", "layers.2.mlq"};
  const std::vector<std::string> want = {"layers.10.mlp", "layers.2.mlq", "layers.mlp"};
  EXPECT_EQ(nearest("layers.*.mlp", names, 3), want);
}

}  // namespace
}  // namespace coshard::testing
