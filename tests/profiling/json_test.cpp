#include "profiling/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace coshard {
namespace {

TEST(Json, QuotesWhatWouldEndOrBreakAString) {
  EXPECT_EQ(json_text("a\"b\\c\n"), R"("a\"b\\c\n")");
}

TEST(Json, WritesNumbersThatReadBackEqual) {
  for (const double value : {0.1, 1e300, -3.0, 1.0 / 3})
    EXPECT_EQ(std::stod(json_text(value)), value);
}

TEST(Json, HasNoNumberForInfinityAndNan) {
  EXPECT_EQ(json_text(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_text(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(Json, ReplacesBytesThatAreNoUtf8) { EXPECT_EQ(json_text("a\xff"), "\"a\xef\xbf\xbd\""); }

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(json_text({{"z", 1}, {"a", 2}}), R"({"z":1,"a":2})"); }

}  // namespace
}  // namespace coshard
