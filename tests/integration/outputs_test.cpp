#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

class Outputs : public ::testing::Test {
 protected:
  Outputs() {
    options_ = small_options(text_);
    options_.ranks = 2;
    options_.steps = 6;
    options_.eval_blocks = 1;
    options_.sample = 10;
    options_.json = temporary_path("out.json");
    options_.trace = temporary_path("out.trace.json");
  }
  ~Outputs() override {
    std::remove(options_.json.c_str());
    std::remove(options_.trace.c_str());
  }
  TextFile text_{100'000};
  train::Options options_;
};

TEST_F(Outputs, TheJsonFileHoldsTheFiguresAndTheTraceEveryArrow) {
  train::Outcome outcome = run_training(options_);
  outcome.compressors = {{"gzip -9", 2.5}, {"xz -9", nullptr}};
  train::write_files(options_, outcome);
  EXPECT_TRUE(json_file_holds(options_.json, R"(
assert d['tokens_per_s'] > 0 and d['step_ms_min'] <= d['step_ms'] <= d['step_ms_max']
assert len(d['loss']) == 6 and all(0 < x < 10 for x in d['loss'])
assert 0 < d['bits_per_byte'] < 10
assert 0 < d['gemm_share'] < 1 and 0 <= d['hidden_share'] <= 1
moved = d['communication']
rows = moved['rows']
assert abs(sum(r['exposed_ms_per_step'] for r in rows) - moved['exposed_ms_per_step']) < 1e-9 and moved['exposed_ms_per_step'] < d['step_ms_max']
reduced = [r for r in rows if r['kind'] == 'all_reduce' and r['for'] == 'P(sum)->R']
assert len(reduced) == 1 and reduced[0]['per_step'] == int(reduced[0]['per_step']) > 0, rows
assert reduced[0]['bytes_per_step'] == reduced[0]['per_step'] * 4 * 2 * 30 * 32, rows
assert d['config']['ranks'] == 2 and d['config']['plan'] == 'tp' and d['config']['dtype'] == 'f32'
assert d['config']['threads'] == 1, d['config']
assert d['compressors'] == {'gzip -9': 2.5, 'xz -9': None}
)"));
  EXPECT_TRUE(json_file_holds(options_.trace, R"(
events = d['traceEvents']
starts = [e['id'] for e in events if e['ph'] == 's']
ends = [e['id'] for e in events if e['ph'] == 'f']
assert len(starts) > 20 and sorted(starts) == sorted(ends) and len(set(starts)) == len(starts)
assert {e['pid'] for e in events} == {0, 1}
spans = {}
for e in events:
    if e['ph'] == 'X': spans[(e['pid'], e['tid'])] = spans.get((e['pid'], e['tid']), 0) + 1
flying = {r: [e['args']['bytes'] for e in events if e['ph'] == 'C' and e['pid'] == r and e['name'] == 'bytes in flight'] for r in (0, 1)}
assert all(max(of) > 0 and of[-1] == 0 for of in flying.values()), flying
assert all(spans.get((r, t), 0) > 10 for r in (0, 1) for t in (0, 1, 2)), spans
assert any('layers.0.self_attn' in e['name'] for e in events)
on = lambda tid, name: [e for e in events if e['ph'] == 'X' and e['tid'] == tid and e['pid'] == 0 and e['name'] == name]
assert all(e['name'] for e in events), 'a span without a name'
assert len(on(0, 'model')) >= 3, on(0, 'model')
for step in ('step 2', 'step 3', 'step 4'): assert len(on(0, step)) == 1, step
assert not on(0, 'step 5') and len(on(0, 'AdamW')) == 3 and len(on(1, 'AdamW')) == 3
step, update = on(0, 'step 2')[0], on(1, 'AdamW')[0]
assert step['ts'] <= update['ts'] and update['ts'] + update['dur'] <= step['ts'] + step['dur']
assert update['args']['inputs'].endswith(' elements'), update
products = on(1, 'linear') or on(1, 'matmul')
assert products and all(e['args']['kind'] == 'gemm' and e['args']['inputs'].startswith('f32[') for e in products), products[:1]
)"));
}

TEST_F(Outputs, TheReportShowsTableScoreAndSample) {
  const train::Outcome outcome = run_training(options_);
  std::ostringstream out;
  train::print_report(out, options_, outcome);
  for (const char* part : {"tokens/s", "GEMM and attention", "all_reduce", "exposed ms", "hidden %",
                           "held-out ", " bits per byte\n", "And it came to pass |"})
    EXPECT_NE(out.str().find(part), std::string::npos) << part << " is missing in\n" << out.str();
}

// Which cannot be opened again: the compressors get what was read.
TEST_F(Outputs, CompressorsPackATextFromAPipeAsTheyPackAFile) {
  const auto trained_on = [this](const std::string& input, const std::string& path) {
    const std::string command = input +
                                TRAIN_PROGRAM
                                " --ranks 1 --layers 1 --dim 16 --heads 2 "
                                "--ffn 16 --seq 16 --batch 1 --steps 1 --eval-blocks 1 "
                                "--sample 0 --text " +
                                path + " --json " + options_.json + ">/dev/null";
    return std::system(command.c_str());
  };
  ASSERT_EQ(trained_on("", text_.path()), 0);
  std::ifstream file(options_.json);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  const std::size_t begin = whole.find("\"compressors\""), end = whole.find('}', begin);
  ASSERT_LT(begin, end);
  ASSERT_EQ(trained_on("cat " + text_.path() + " | ", "/dev/stdin"), 0);
  std::ifstream piped(options_.json);
  const std::string other(std::istreambuf_iterator<char>(piped), {});
  EXPECT_NE(other.find(whole.substr(begin, end - begin)), std::string::npos) << other;
  EXPECT_TRUE(json_file_holds(options_.json, R"(
assert all(bits is None or 0.5 < bits < 4 for bits in d['compressors'].values()), d['compressors']
)"));
}

TEST_F(Outputs, TheReportSaysHowManyEventsTheTraceLacks) {
  train::Outcome outcome;
  outcome.loss = outcome.step_ms = {2.0};
  outcome.traces.assign(2, ChromeTrace(1));
  for (ChromeTrace& trace : outcome.traces)
    for (int i = 0; i < 4; ++i) trace.computed("add", ComputeClass::Other, i, i + 1);
  std::ostringstream out;
  train::print_report(out, options_, outcome);
  EXPECT_TRUE(out.str().ends_with(
      "\nThe trace lacks 6 events: --trace-steps 3 is more than it can hold.\n"))
      << out.str();
}

TEST_F(Outputs, ThreadsInTheJsonAreThoseThatARankHasWhenNobodySaidHowMany) {
  options_.threads = 0;
  options_.trace.clear();
  train::write_files(options_, run_training(options_));
  EXPECT_TRUE(json_file_holds(options_.json, "assert d['config']['threads'] >= 1, d['config']"));
}

TEST_F(Outputs, AnEmulatedLinkIsToldOfInTableTraceAndJsonAndChangesNoLoss) {
  const train::Outcome without = run_training(options_);
  options_.link_name = "20us,1GB/s";
  options_.link = parse_link(options_.link_name);
  options_.progress_threads = 1;
  const train::Outcome outcome = run_training(options_);
  EXPECT_EQ(outcome.loss, without.loss);
  std::ostringstream out;
  train::print_report(out, options_, outcome);
  EXPECT_NE(out.str().find("on an emulated link of 20us,1GB/s:\n"), std::string::npos) << out.str();
  train::write_files(options_, outcome);
  EXPECT_TRUE(json_file_holds(options_.json, R"(
assert d['config']['link'] == '20us,1GB/s' and d['config']['progress_threads'] == 1, d['config']
)"));
  EXPECT_TRUE(json_file_holds(options_.trace, R"(
names = {e['args']['name'] for e in d['traceEvents'] if e['name'] == 'thread_name'}
assert 'communication, emulated link 20us,1GB/s' in names, names
)"));
}

TEST_F(Outputs, NothingIsHiddenOfNothing) {
  options_.ranks = 1;
  train::write_files(options_, run_training(options_));
  EXPECT_TRUE(
      json_file_holds(options_.json, "assert d['hidden_share'] is None, d['hidden_share']"));
}

TEST_F(Outputs, WithoutOverlapTheMeanOfTheLossIsNotHiddenUnderBackward) {
  options_.plan = "dp";
  options_.overlap = "off";
  options_.link = parse_link("1ms,1GB/s");
  train::write_files(options_, run_training(options_));
  EXPECT_TRUE(json_file_holds(options_.json, R"(
mean = [r for r in d['communication']['rows'] if r['per_step'] == 1 and r['bytes_per_step'] == 4]
assert mean, d['communication']
assert all(r['exposed_ms_per_step'] > r['in_flight_ms_per_step'] / 2 for r in mean), mean
)"));
}

}  // namespace
}  // namespace coshard::testing
