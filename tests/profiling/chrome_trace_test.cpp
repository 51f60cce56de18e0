#include <coshard/profiling/chrome_trace.h>

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/json.h"

namespace coshard {
namespace {

CommEvent event(std::uint64_t id) {
  CommEvent made;
  made.id = id;
  made.sequence = id;
  made.kind = CollectiveKind::AllGather;
  made.label = "S(0)->\"R\"";
  made.bytes = 64;
  made.where = {"../train.cpp", 88};
  return made;
}

std::string written(const std::vector<ChromeTrace>& ranks) {
  std::ostringstream out;
  write_chrome_trace(out, ranks);
  return out.str();
}

// Two collectives in flight together, awaits inside modules, and siblings that overlap without
// nesting.
std::vector<ChromeTrace> busy_ranks() {
  std::vector<ChromeTrace> ranks(2);
  for (ChromeTrace& trace : ranks) {
    trace.module_enter("a");
    trace.computed("matmul", ComputeClass::Gemm, now_ns(), now_ns() + 5000);
    const std::int64_t t = now_ns();
    trace.issued(event(1), t);
    trace.issued(event(2), t + 100);
    trace.module_enter("b");
    trace.ready(event(1), t + 500, t + 3000, t + 3100);
    trace.ready(event(2), t + 3200, t + 3050, t + 3200);
    trace.module_exit("a");
    trace.module_exit("b");
  }
  return ranks;
}

const char* const kNests = R"(
tracks = {}
for e in d['traceEvents']:
    if e['ph'] == 'X': tracks.setdefault((e['pid'], e['tid']), []).append((e['ts'], e['ts'] + e['dur']))
assert tracks
for spans in tracks.values():
    open_ends = []
    for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin + 1e-6: open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 1e-6, (begin, end, open_ends)
        open_ends.append(end)
)";

TEST(ChromeTrace, IsJsonWithAProcessPerRankAndThreeNamedTracks) {
  EXPECT_TRUE(testing::json_holds(written(busy_ranks()), R"(
names = {(e['pid'], e['args']['name']) for e in d['traceEvents'] if e['name'] == 'thread_name'}
assert names == {(r, n) for r in (0, 1) for n in ('host', 'compute', 'communication')}, names
assert {e['args']['name'] for e in d['traceEvents'] if e['name'] == 'process_name'} == {'rank 0', 'rank 1'}
assert min(e['ts'] for e in d['traceEvents'] if 'ts' in e) == 0
)"));
}

TEST(ChromeTrace, NamesTheLinkThatWasEmulated) {
  std::vector<ChromeTrace> ranks = busy_ranks();
  CommEvent linked = event(3);
  linked.link = "20us,1GB/s";
  ranks[1].issued(linked, now_ns());
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
names = [e['args']['name'] for e in d['traceEvents'] if e['name'] == 'thread_name' and e['tid'] == 2]
assert names == ['communication', 'communication, emulated link 20us,1GB/s'], names
)"));
}

TEST(ChromeTrace, SpansOfATrackNest) {
  EXPECT_TRUE(testing::json_holds(written(busy_ranks()), kNests));
}

TEST(ChromeTrace, EveryIssueHasOneArrowToItsAwait) {
  EXPECT_TRUE(testing::json_holds(written(busy_ranks()), R"(
starts = {e['id']: e for e in d['traceEvents'] if e['ph'] == 's'}
ends = {e['id']: e for e in d['traceEvents'] if e['ph'] == 'f'}
assert len(starts) == 4 and starts.keys() == ends.keys(), (starts, ends)
for i, start in starts.items():
    assert start['tid'] == 2 and ends[i]['tid'] == 0 and start['pid'] == ends[i]['pid']
    assert start['ts'] <= ends[i]['ts']
)"));
}

TEST(ChromeTrace, ACollectiveHasTheLineOfTheProgramThatLedToIt) {
  EXPECT_TRUE(testing::json_holds(written(busy_ranks()), R"(
collectives = [e for e in d['traceEvents'] if e['ph'] == 'X' and e['tid'] == 2]
assert len(collectives) == 4
assert all(e['args']['at'] == 'train.cpp:88' for e in collectives), collectives
)"));
}

TEST(ChromeTrace, DrawsNothingForACollectiveThatNobodyAwaited) {
  std::vector<ChromeTrace> ranks(1);
  ranks[0].issued(event(7), now_ns());
  EXPECT_TRUE(ranks[0].spans().empty());
  EXPECT_TRUE(testing::json_holds(written(ranks),
                                  "assert not [e for e in d['traceEvents'] if e['ph'] == 's']"));
}

TEST(ChromeTrace, DropsWhatIsMoreThanItMayHold) {
  ChromeTrace trace(2);
  for (int i = 0; i < 5; ++i) trace.computed("add", ComputeClass::Other, i, i + 1);
  EXPECT_EQ(trace.spans().size(), 2U);
  EXPECT_EQ(trace.dropped(), 3U);
}

}  // namespace
}  // namespace coshard
