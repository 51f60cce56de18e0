#include "profiling/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coshard {
namespace {

TEST(Json, QuotesWhatWouldEndOrBreakAString) {
  EXPECT_EQ(json_quote("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
}

TEST(Json, WritesNumbersThatReadBackEqual) {
  for (const double value : {0.1, 1e300, -3.0, 1.0 / 3})
    EXPECT_EQ(std::stod(json_number(value)), value);
}

TEST(Json, HasNoNumberForInfinityAndNan) {
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(std::nan("")), "null");
}

}  // namespace
}  // namespace coshard
