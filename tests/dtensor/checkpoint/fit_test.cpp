// Which types go into which, and errors that name what does not fit.
#include "dtensor/checkpoint/fit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

TEST(Fit, WidensWhatLosesNothing) {
  const DType all[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                       DType::I64, DType::I32, DType::Bool};
  const auto list = [&](Cast cast) {
    std::string pairs;
    for (const DType from : all)
      for (const DType to : all)
        if (from != to && may_be_cast(from, to, cast)) pairs += str_cat(from, '>', to, ' ');
    return pairs;
  };
  EXPECT_EQ(list(Cast::Same), "");
  EXPECT_EQ(list(Cast::Widen), "f32>f64 bf16>f32 bf16>f64 f16>f32 f16>f64 i32>i64 ");
  const std::string any = list(Cast::Any);
  EXPECT_EQ(std::count(any.begin(), any.end(), '>'), 4 * 3 + 2) << any;
}

TEST(Complaints, NameTheFirstAndCountTheRest) {
  Complaints complaints;
  complaints.require_none("load");
  for (int i = 0; i < 11; ++i) complaints.add("no ", i);
  const std::string text = message_of([&] { complaints.require_none("load: m"); });
  EXPECT_EQ(text.substr(0, 20), "load: m: no 0; no 1;");
  EXPECT_EQ(text.substr(text.size() - 16), "no 7; and 3 more");
}

TEST(Complaints, NameFiveOfWhatIsMissingAndFiveOfWhatIsUnexpected) {
  EXPECT_EQ(first_of({"a"}), "'a'");
  LoadReport report;
  report.missing = {"a", "b", "c", "d", "e"};
  report.unexpected = {"f", "g", "h", "i", "j", "k", "l"};
  Complaints complaints;
  complaints.add_names(report);
  const std::string text = message_of([&] { complaints.require_none("load: m"); });
  EXPECT_CONTAINS(text, "lacks 'a', 'b', 'c', 'd', 'e'; ");
  EXPECT_CONTAINS(text, "has 'f', 'g', 'h', 'i', 'j' and 2 more, ");
}

}  // namespace
}  // namespace coshard::testing
