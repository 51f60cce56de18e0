#include "profiling/observer_json.h"

#include <gtest/gtest.h>

#include <sstream>

namespace coshard {
namespace {

CommEvent event(std::uint64_t id, std::string_view label) {
  CommEvent e;
  e.id = id;
  e.sequence = 10 + id;
  e.kind = CollectiveKind::AllGather;
  e.bytes = 100;
  e.label = label;
  e.link = "20us,1GB/s";
  e.where = {"train.cpp", 7};
  e.communicator = "tp";
  return e;
}

TEST(ObserverJson, ASummaryComesBackEqual) {
  CommSummary own;
  own.issued(event(1, "S(0)->R"), 10);
  own.ready(event(1, "S(0)->R"), 20, 25, 30);
  own.issued(event(2, "R->P"), 40);
  own.computed("matmul", ComputeClass::Gemm, 5, 9);
  const Json json = ObserverJson::of(own);
  const CommSummary back = ObserverJson::summary(Json::parse(json_text(json)));
  EXPECT_EQ(ObserverJson::of(back), json);
  EXPECT_EQ(back.link(), "20us,1GB/s");
  EXPECT_EQ(back.total().count, 2);
  EXPECT_EQ(back.total().bytes, 200);
  EXPECT_EQ(back.total().exposed_ns, 10);
  EXPECT_EQ(back.compute_ns(ComputeClass::Gemm), 4);
}

TEST(ObserverJson, ATraceComesBackEqualOrLater) {
  ChromeTrace own(5);
  own.range_enter("step");
  own.issued(event(1, "S(0)->R"), 10);
  own.ready(event(1, "S(0)->R"), 20, 25, 30);
  own.computing("matmul", ComputeClass::Gemm, [] { return std::string("f32[2] f32[2]"); });
  own.computed("matmul", ComputeClass::Gemm, 5, 9);
  own.range_exit("step");
  for (int i = 0; i < 4; ++i) own.computed("add", ComputeClass::Other, i, i + 1);
  const Json json = ObserverJson::of(own);
  const ChromeTrace back = ObserverJson::trace(Json::parse(json_text(json)));
  EXPECT_EQ(ObserverJson::of(back), json);
  EXPECT_EQ(back.dropped(), 3U);
  std::ostringstream one, other;
  write_chrome_trace(one, std::span(&own, 1));
  write_chrome_trace(other, std::span(&back, 1));
  EXPECT_EQ(one.str(), other.str());
  const ChromeTrace later = ObserverJson::trace(json, 1000);
  for (std::size_t i = 0; i < own.spans().size(); ++i) {
    EXPECT_EQ(later.spans()[i].begin, own.spans()[i].begin + 1000);
    EXPECT_EQ(later.spans()[i].end, own.spans()[i].end + 1000);
  }
}

}  // namespace
}  // namespace coshard
