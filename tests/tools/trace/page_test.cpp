#include "tools/trace/page.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/json.h"
#include "tests/tools/trace/small_trace.h"

namespace coshard::tools {
namespace {

TEST(Page, DataHasALaneForComputeAndForEachCommunicatorOfARank) {
  std::vector<overlap::RankTrace> trace = coshard::testing::small_trace();
  trace[1].events.push_back(trace[1].events.back());
  trace[1].events.back().communicator = "dp";
  EXPECT_TRUE(coshard::testing::json_holds(json_text(page_data(trace, 7)), R"(
assert [(l['rank'], l['name'], l['compute']) for l in d['lanes']] == [
    (0, 'compute', True), (0, 'comm tp', False), (1, 'compute', True), (1, 'comm dp', False), (1, 'comm tp', False)]
gather, texts = d['lanes'][1], d['texts']
assert gather['begin'] == [30000000] and gather['length'] == [40000000] and gather['bytes'] == [3000000]
assert [texts[gather[k][0]] for k in ('text', 'module', 'at')] == ['all_gather S(0)->R', 'layers.0', 'a.cpp:7']
assert gather['hidden'] == [30000000]
assert [c['hidden'] for c in d['lanes'][3:]] == [[0], [0]]
assert gather['parts'] == {'begin': [30000000, 30000000], 'length': [30000000, 10000000], 'modules': [gather['parts']['modules'][0]] * 2,
                           'exposed': [0, 1]}, gather['parts']
assert [[texts[m] for m in d['modules'][s]] for s in gather['parts']['modules'][:1]] == [['layers.0']]
assert 'hidden' not in d['lanes'][0] and 'parts' not in d['lanes'][0]
assert len(set(texts)) == len(texts) and (d['begin'], d['end'], d['report']) == (0, 100000000, 7)
assert d['ranges'] == [['step 2', 0, 100000000]], d['ranges']
)"));
}

TEST(Page, BeginsAreDifferencesInAscendingOrder) {
  std::vector<overlap::RankTrace> trace = {{0, "", 0, {}}};
  for (const std::int64_t begin : {50, 10, 30})
    trace[0].events.push_back(
        {overlap::TraceEvent::Kind::Kernel, {begin, begin + 5}, "add", "", "", "", 0});
  EXPECT_EQ(page_data(trace, {})["lanes"][0]["begin"], (Json{10, 20, 20}));
}

TEST(Page, KernelsThatTouchAreShadedByTheirParts) {
  std::vector<overlap::RankTrace> trace = {{0, "", 0, {}}};
  for (const std::int64_t begin : {10, 13, 30})
    trace[0].events.push_back(
        {overlap::TraceEvent::Kind::Kernel, {begin, begin + 5}, "add", "a", "", "", 0});
  EXPECT_EQ(page_data(trace, {})["lanes"][0]["parts"],
            (Json{{"begin", {10, 20}}, {"length", {8, 5}}, {"modules", {0, 0}}}));
}

TEST(Page, NeedsNoOtherFileAndNoNameEndsItsScript) {
  std::ostringstream out;
  write_page(out, Json{{"name", "</script><!--<b>"}});
  const std::string page = out.str();
  EXPECT_TRUE(page.starts_with("<!doctype html>")) << page.substr(0, 40);
  EXPECT_NE(page.find(R"({"name":"\u003c/script>\u003c!--\u003cb>"})"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  for (const char* outside : {" src=", "http:", "https:", "@import", "url(", "rel=\"stylesheet\""})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

}  // namespace
}  // namespace coshard::tools
