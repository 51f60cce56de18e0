#include <coshard/profiling/chrome_trace.h>

#include <gtest/gtest.h>

#include <sstream>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/runtime/trace_range.h>
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

// Of a device that queues its work: the host is done before anything has run.
std::vector<ChromeTrace> queued_ranks() {
  std::vector<ChromeTrace> ranks(1);
  ChromeTrace& trace = ranks[0];
  CommEvent first = event(1), second = event(2);
  first.queued = second.queued = true;
  trace.module_enter("a");
  const std::int64_t t = now_ns();
  trace.issued(first, t);
  trace.computed("matmul", ComputeClass::Gemm, t + 10, t + 20);
  trace.queued(1);
  trace.issued(second, t + 30);
  trace.ready(first, t + 40, t + 40, t + 40);
  trace.computed("add", ComputeClass::Other, t + 50, t + 60);
  trace.queued(2);
  trace.ready(second, t + 70, t + 70, t + 70);
  trace.module_exit("a");
  trace.kernel_ran(1, t + 1'000'000, t + 3'000'000);
  trace.stalled(first, t + 3'000'000, t + 4'000'000);
  trace.ran(first, t + 1'000'000, t + 4'000'000);
  trace.kernel_ran(2, t + 4'000'000, t + 6'000'000);
  trace.stalled(second, t + 6'000'000, t + 6'000'000);
  trace.ran(second, t + 4'000'000, t + 5'000'000);
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

TEST(ChromeTrace, ShowsQueuedWorkWhereTheStreamsHadIt) {
  EXPECT_TRUE(testing::json_holds(written(queued_ranks()), R"(
spans = [(e['cat'], e['tid'], round(e['dur'])) for e in sorted((e for e in d['traceEvents'] if e['ph'] == 'X'), key=lambda e: e['ts'])]
assert spans[0][0] == 'module', spans
assert sorted(spans[1:]) == [('await', 1, 0), ('await', 1, 1000), ('collective', 2, 1000), ('collective', 2, 3000),
                             ('kernel', 1, 2000), ('kernel', 1, 2000)], spans
exposed = [e['args']['ms'] for e in d['traceEvents'] if e['ph'] == 'C' and 'ms' in e['args']]
assert exposed == [0, 1], exposed  # the stream stands still for the first one for 1 ms after the kernel
modules = {e['args'].get('module') for e in d['traceEvents'] if e['ph'] == 'X' and e['cat'] == 'kernel'}
assert modules == {'a'} or modules == {None}, modules
)"));
  EXPECT_TRUE(testing::json_holds(written(queued_ranks()), kNests));
}

// The last of them has the arrow.
TEST(ChromeTrace, DrawsAllPiecesOfAnAwaitOnTheHost) {
  std::vector<ChromeTrace> ranks(1);
  CommEvent one = event(1);
  one.communicator = "tp";
  ranks[0].issued(one, 1'000'000);
  ranks[0].stalled(one, 2'000'000, 3'000'000);
  ranks[0].ready(one, 5'000'000, 6'000'000, 6'000'000);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
awaits = [e for e in d['traceEvents'] if e['ph'] == 'X' and e['cat'] == 'await']
assert sorted((e['tid'], e['ts'], e['dur']) for e in awaits) == [(0, 1000, 1000), (0, 4000, 1000)], awaits
assert {e['name'] for e in awaits} == {'await all_gather S(0)->"R"'} and awaits[0]['args'] == awaits[1]['args'], awaits
assert sorted(e['ph'] for e in d['traceEvents'] if e.get('cat') == 'comm') == ['f', 's']
)"));
}

// A span that is drawn for the sake of its arrow says how long the await was, and cuts none off.
TEST(ChromeTrace, AnAwaitOfNoTimeHasASpanThatCutsNoOther) {
  std::vector<ChromeTrace> ranks(1);
  for (const std::uint64_t id : {1, 2}) ranks[0].issued(event(id), 1'000);
  ranks[0].ready(event(1), 5'000, 5'000, 5'000);
  ranks[0].ready(event(2), 5'030, 9'000, 9'000);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
awaits = [(round(e['ts'], 3), round(e['dur'], 3), e['args'].get('waited_us')) for e in d['traceEvents'] if e.get('cat') == 'await']
assert awaits == [(4, 0.03, 0), (4.03, 3.97, None)], awaits
)"));
}

// The stream stands still for each shard.
TEST(ChromeTrace, DrawsAllPiecesOfAnAwaitOnTheComputeStream) {
  std::vector<ChromeTrace> ranks(1);
  CommEvent queued = event(1);
  queued.queued = true;
  queued.communicator = "tp";
  ranks[0].issued(queued, 1'000);
  ranks[0].ready(queued, 1'500, 1'500, 1'500);
  ranks[0].stalled(queued, 10'000, 12'000);
  ranks[0].stalled(queued, 13'000, 13'000);
  ranks[0].stalled(queued, 14'000, 17'000);
  ranks[0].ran(queued, 9'000, 17'000);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
awaits = [(e['tid'], e['ts'], e['dur']) for e in d['traceEvents'] if e.get('cat') == 'await']
assert awaits == [(1, 1, 2), (1, 5, 3)], awaits
assert [e['args']['ms'] for e in d['traceEvents'] if e['ph'] == 'C' and 'ms' in e['args']] == [0, 0.002, 0.005]
assert sorted(e['ph'] for e in d['traceEvents'] if e.get('cat') == 'comm') == ['f', 's']
)"));
}

// A wait that a recorded step contains has no time.
TEST(ChromeTrace, DrawsAnAwaitWithoutATimeAtTheEndOfItsCollective) {
  std::vector<ChromeTrace> ranks(1);
  CommEvent queued = event(1);
  queued.queued = true;
  ranks[0].issued(queued, 1'000'000'000);
  ranks[0].ran(queued, 1'001'000'000, 1'002'000'000);
  ASSERT_EQ(ranks[0].spans().size(), 2U);
  EXPECT_EQ(ranks[0].spans()[0].begin, 1'001'000'000);
  EXPECT_EQ(ranks[0].spans()[1].begin, 1'002'000'000);
}

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
    assert start['ts'] <= ends[i]['ts'] and ends[i]['bp'] == 'e'
    assert all((e['name'], e['cat']) == ('await', 'comm') for e in (start, ends[i])), start
    for e, name in ((start, 'all_gather'), (ends[i], 'await')):  # each lies in a span, to which it is drawn
        assert [s for s in d['traceEvents'] if s['ph'] == 'X' and (s['pid'], s['tid']) == (e['pid'], e['tid'])
                and s['name'].startswith(name) and s['ts'] <= e['ts'] <= s['ts'] + s['dur']], e
)"));
}

// The one issued first completes last, and two others at the same time.
TEST(ChromeTrace, CollectivesThatCompleteInAnyOrderAreDrawnUntilTheyDo) {
  std::vector<ChromeTrace> ranks(1);
  for (const std::uint64_t id : {1, 2, 3, 4}) ranks[0].issued(event(id), 1'000);
  ranks[0].ready(event(2), 1'000, 4'000, 4'000);
  ranks[0].ready(event(1), 4'000, 9'000, 9'000);
  ranks[0].ready(event(3), 9'000, 6'000, 9'000);
  ranks[0].ready(event(4), 9'000, 6'000, 9'000);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
spans = [(e['args']['sequence'], round(e['ts'] + e['dur'], 3), round(e['ts'] - e['args'].get('queued_us', 0), 3))
         for e in d['traceEvents'] if e.get('cat') == 'collective']
assert spans == [(2, 3, 0), (3, 4.999, 0), (4, 5, 0), (1, 8, 0)], spans
starts = {e['id']: e['ts'] for e in d['traceEvents'] if e['ph'] == 's'}
ends = {e['id']: e['ts'] for e in d['traceEvents'] if e['ph'] == 'f'}
assert all(starts[i] <= ends[i] for i in starts), (starts, ends)
)"));
  EXPECT_TRUE(testing::json_holds(written(ranks), kNests));
}

// Of 64 bytes each: 1 to 5 us and 3 to 7. The rank stands still from 4.5 to 5 and from 6 to 7.5 for
// one, and from 7 to 8 for the other.
TEST(ChromeTrace, CountsTheBytesInFlightAndTheTimeExposed) {
  std::vector<ChromeTrace> ranks(2);
  CommEvent first = event(1), second = event(2);
  first.communicator = second.communicator = "tp";
  for (ChromeTrace& rank : ranks) {
    rank.computed("add", ComputeClass::Other, 9'000, 10'000);
    rank.issued(first, 1'000);
    rank.issued(second, 3'000);
    rank.computed("matmul", ComputeClass::Gemm, 2'000, 4'000);
    rank.stalled(second, 4'500, 5'000);
    rank.ready(second, 6'000, 7'000, 7'500);
    rank.ready(first, 7'000, 5'000, 8'000);
  }
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
counters = [e for e in d['traceEvents'] if e['ph'] == 'C']
assert {e['pid'] for e in counters} == {0, 1}
for r in (0, 1):
    of = {n: [(e['ts'], *e['args'].items()) for e in counters if e['pid'] == r and e['name'] == n]
          for n in {e['name'] for e in counters}}
    assert of == {'bytes in flight': [(0, ('bytes', 64)), (2, ('bytes', 128)), (4, ('bytes', 64)), (6, ('bytes', 0))],
                  'exposed communication so far': [(0, ('ms', 0)), (4, ('ms', 0.0005)), (7, ('ms', 0.0025))]}, of
)"));
}

TEST(ChromeTrace, CountersOfABusyTraceEndAtZeroAndOnlyWhereSomethingIsCommunicated) {
  std::vector<ChromeTrace> ranks = busy_ranks();
  ranks.emplace_back().computed("add", ComputeClass::Other, now_ns(), now_ns() + 10);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
last = {}
for e in d['traceEvents']:
    if e['ph'] != 'C' or e['name'] != 'bytes in flight': continue
    assert e['args']['bytes'] >= 0 and e['ts'] >= last.get(e['pid'], e)['ts'], e
    last[e['pid']] = e
assert {r: e['args']['bytes'] for r, e in last.items()} == {0: 0, 1: 0}, last
)"));
}

TEST(ChromeTrace, SaysWhatItIsOf) {
  std::vector<ChromeTrace> ranks = busy_ranks();
  CommEvent linked = event(3);
  linked.link = "ndr";
  ranks[0].issued(linked, now_ns());
  std::ostringstream out;
  write_chrome_trace(out, ranks, 0, std::nullopt, {{"plan", "tp"}, {"link", "tp=nvlink4,dp=ndr"}});
  EXPECT_TRUE(testing::json_holds(out.str(), R"(
assert d['otherData']['plan'] == 'tp' and d['otherData']['link'] == 'tp=nvlink4,dp=ndr', d['otherData']
assert all('emulated' not in e['args']['name'] for e in d['traceEvents'] if e['name'] == 'thread_name')
)"));
}

TEST(ChromeTrace, ACollectiveHasTheLineOfTheProgramThatLedToIt) {
  EXPECT_TRUE(testing::json_holds(written(busy_ranks()), R"(
collectives = [e for e in d['traceEvents'] if e['ph'] == 'X' and e['tid'] == 2]
assert len(collectives) == 4
assert all(e['args']['at'] == 'train.cpp:88' for e in collectives), collectives
)"));
}

TEST(ChromeTrace, AKernelHasItsKindAndWhatItWorksOn) {
  std::vector<ChromeTrace> ranks(1);
  ranks[0].computing("linear", ComputeClass::Gemm, [] { return std::string("f32[8,512] f32[4]"); });
  ranks[0].computed("linear", ComputeClass::Gemm, 1000, 2500);
  ranks[0].computed("add", ComputeClass::Other, 3000, 3500);  // begun before it watched
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
linear, add = [e for e in d['traceEvents'] if e['ph'] == 'X']
assert linear['args'] == {'kind': 'gemm', 'inputs': 'f32[8,512] f32[4]'} and linear['dur'] == 1.5, linear
assert add['args'] == {'kind': 'other'}, add
)"));
}

TEST(ChromeTrace, TheRootModuleAndNamedRangesHaveNames) {
  std::vector<ChromeTrace> ranks(1);
  ranks[0].range_enter("step 7");
  ranks[0].module_enter("");
  ranks[0].module_exit("");
  ranks[0].range_exit("step 7");
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
step, model = [e for e in d['traceEvents'] if e['ph'] == 'X']
assert (step['name'], model['name']) == ('step 7', 'model') and step['tid'] == model['tid'] == 0
assert step['ts'] <= model['ts'] and model['ts'] + model['dur'] <= step['ts'] + step['dur'] + 1e-6
)"));
}

Task<void> in_a_range(std::chrono::milliseconds time) {
  const TraceRange range("work");
  co_await sleep_for(time);
}

TEST(ChromeTrace, BranchesMayBeInRangesOfOneName) {
  std::vector<ChromeTrace> ranks(1);
  run_ranks({.ranks = 1}, [&](World& world) -> Task<void> {
    world.add_observer(&ranks[0]);
    Task<void> both = when_all(in_a_range(std::chrono::milliseconds(1)),
                               in_a_range(std::chrono::milliseconds(5)));
    co_await std::move(both);
    world.remove_observer(&ranks[0]);
  });
  const std::vector<ChromeTrace::Span>& spans = ranks[0].spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_LT(spans[0].begin, spans[1].begin);  // who leaves first has entered first
  EXPECT_LT(spans[0].end, spans[1].end);
}

// Collectives of two communicators are in flight together; those of one are drawn one after the
// other.
TEST(ChromeTrace, EachCommunicatorHasATrack) {
  std::vector<ChromeTrace> ranks(1);
  for (const std::uint64_t id : {1, 2, 3}) {
    CommEvent issued = event(id);
    issued.communicator = id == 2 ? "dp" : "tp";
    ranks[0].issued(issued, 1000);
    ranks[0].ready(issued, 1000, 9000, 9000);
  }
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
tracks = {e['tid']: e['args']['name'] for e in d['traceEvents'] if e['name'] == 'thread_name'}
assert tracks == {0: 'host', 1: 'compute', 2: 'communication tp', 3: 'communication dp'}, tracks
spans = [(e['tid'], e['args']['communicator'], e['dur']) for e in d['traceEvents'] if e.get('cat') == 'collective']
assert spans == [(2, 'tp', 7.999), (2, 'tp', 0.001), (3, 'dp', 8)], spans
)"));
}

TEST(ChromeTrace, KernelsAndCollectivesHaveTheModuleThatIssuedThem) {
  std::vector<ChromeTrace> ranks(1);
  run_ranks({.ranks = 1}, [&](World& world) -> Task<void> {
    world.add_observer(&ranks[0]);
    Observer& told = world.observer();
    told.computed("add", ComputeClass::Other, now_ns(), now_ns());
    told.module_enter("");
    told.module_enter("a");
    told.computed("matmul", ComputeClass::Gemm, now_ns(), now_ns());
    told.issued(event(1), now_ns());
    told.module_exit("a");
    told.ready(event(1), now_ns(), now_ns(), now_ns());
    told.computed("mul", ComputeClass::Other, now_ns(), now_ns());
    told.module_exit("");
    co_return;
  });
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
of = {e['name']: (e['cat'], e.get('args', {}).get('module')) for e in d['traceEvents'] if e['ph'] == 'X'}
assert of == {'add': ('kernel', None), 'matmul': ('kernel', 'a'), 'mul': ('kernel', 'model'),
              'all_gather S(0)->"R"': ('collective', 'a'), 'await all_gather S(0)->"R"': ('await', 'a'),
              'model': ('module', None), 'a': ('module', None)}, of
)"));
}

TEST(ChromeTrace, SaysHowManyEventsWereDropped) {
  std::vector<ChromeTrace> ranks(2, ChromeTrace(1));
  for (int i = 0; i < 3; ++i) ranks[1].computed("add", ComputeClass::Other, i, i + 1);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
labels = [(e['pid'], e['args']['labels']) for e in d['traceEvents'] if e['name'] == 'process_labels']
assert labels == [(1, '2 events dropped')], labels
)"));
}

TEST(ChromeTrace, BytesThatAreNoUtf8AreStillJson) {
  std::vector<ChromeTrace> ranks(1);
  ranks[0].range_enter("a\xff\"b");
  ranks[0].range_exit("a\xff\"b");
  EXPECT_TRUE(testing::json_holds(
      written(ranks),
      "assert [e['name'] for e in d['traceEvents'] if e['ph'] == 'X'] == ['a\\ufffd\"b']"));
}

// At its issue, so that it counts as in a table; how long it took, nobody knows.
TEST(ChromeTrace, DrawsNoArrowFromWhatNobodyAwaited) {
  std::vector<ChromeTrace> ranks(1);
  ranks[0].issued(event(7), 5'000);
  EXPECT_TRUE(testing::json_holds(written(ranks), R"(
assert not [e for e in d['traceEvents'] if e['ph'] in 'sf' or e.get('cat') == 'await']
spans = [(e['ts'], e['dur']) for e in d['traceEvents'] if e['ph'] == 'X']
assert spans == [(0, 0.1)], spans
)"));
}

TEST(ChromeTrace, DropsWhatIsMoreThanItMayHold) {
  ChromeTrace trace(2);
  for (int i = 0; i < 5; ++i) trace.computed("add", ComputeClass::Other, i, i + 1);
  EXPECT_EQ(trace.spans().size(), 2U);
  EXPECT_EQ(trace.dropped(), 3U);
}

}  // namespace
}  // namespace coshard
