#include "tools/trace/picture.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/tools/trace/small_trace.h"

namespace coshard::tools {
namespace {

using coshard::testing::small_trace;

std::string drawn(const std::vector<overlap::RankTrace>& trace,
                  const std::vector<overlap::RankTrace>* baseline = nullptr) {
  std::ostringstream out;
  write_picture(out, trace, baseline);
  return out.str();
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// 608 pixels are 100 ms.
TEST(Picture, ShowsWhatIsHiddenAndWhatIsNot) {
  const std::string text = drawn(small_trace());
  EXPECT_NE(text.find(">One step: 100 ms; communication is in flight for 30 ms, 50 % of it "
                      "hidden<"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"(<path fill="#2da44e" d="M318.4 68h182.4v22h-182.4z"/>)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"(<path fill="#cf222e" d="M500.8 68h60.8v22h-60.8z"/>)"), std::string::npos)
      << text;
  EXPECT_EQ(count_of(text, "#2da44e"), 2) << "rank 1 hides nothing; the key";
}

TEST(Picture, ShowsABaselineOnTheSameScale) {
  std::vector<overlap::RankTrace> slower = small_trace();
  for (overlap::RankTrace& rank : slower)
    for (overlap::TraceEvent& event : rank.events) event.time.begin *= 2, event.time.end *= 2;
  const std::vector<overlap::RankTrace> trace = small_trace();
  const std::string text = drawn(trace, &slower);
  EXPECT_LT(text.find("\"600\">Without overlap: 200 ms;"),
            text.find("\"600\">With overlap: 100 ms;"));
  EXPECT_NE(text.find("h91.2v22"), std::string::npos) << "30 ms, of 200 in 608 pixels\n" << text;
}

TEST(Picture, DrawsTheLastStepOfFourRanksOrAllOfATraceWithoutSteps) {
  std::vector<overlap::RankTrace> many;
  for (int rank = 0; rank < 6; ++rank) {
    many.push_back(small_trace()[0]);
    many.back().rank = rank;
    overlap::TraceEvent later = many.back().events[0];
    later.name = "step 3", later.time = {60'000'000, 70'000'000};
    many.back().events.push_back(later);
  }
  const std::string text = drawn(many);
  EXPECT_NE(text.find("One step: 10 ms; communication is in flight for 10 ms, 0 % of it"),
            std::string::npos)
      << text;
  EXPECT_EQ(count_of(text, " computes<"), 4);
  std::vector<overlap::RankTrace> plain = small_trace();
  for (overlap::RankTrace& rank : plain)
    std::erase_if(rank.events,
                  [](const auto& event) { return event.kind == overlap::TraceEvent::Kind::Range; });
  EXPECT_NE(drawn(plain).find("One step: 100 ms;"), std::string::npos);
  EXPECT_TRUE(drawn({}).ends_with("</svg>\n"));
}

}  // namespace
}  // namespace coshard::tools
