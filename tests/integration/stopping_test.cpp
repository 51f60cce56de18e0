// How a run of examples/train ends before its last step: asked to, twice asked to, or with a loss
// that is not finite.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <stop_token>

#include "tests/integration/child.h"
#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

class Stopping : public ::testing::Test {
 protected:
  ~Stopping() override {
    std::remove(json_.c_str());
    std::remove(trace_.c_str());
  }
  // The real program on two ranks and a small model, which writes both files.
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> words{
        TRAIN_PROGRAM, "--text",  text_.path(), "--json",      json_, "--trace",
        trace_,        "--ranks", "2",          "--threads",   "1",   "--layers",
        "2",           "--dim",   "32",         "--heads",     "4",   "--ffn",
        "50",          "--seq",   "30",         "--log-every", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  TextFile text_{100'000};
  std::string json_ = temporary_path("out.json"), trace_ = temporary_path("out.trace.json");
};

TEST_F(Stopping, ASignalEndsTheRunWithAllItsFigures) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Child train(command({"--steps", "100000000", "--eval-blocks", "1", "--sample", "5"}));
    ASSERT_TRUE(train.says("step         3/100000000")) << train.out() << train.err();
    train.send(signal);
    EXPECT_EQ(train.end(), 0) << train.err();
    EXPECT_NE(train.err().find(signal == SIGINT ? "SIGINT" : "SIGTERM"), std::string::npos)
        << train.err();
    for (const char* part : {"stopped after step ", "a stop was requested", "held-out ", "|"})
      EXPECT_NE(train.out().find(part), std::string::npos) << part << " is not in " << train.out();
    EXPECT_TRUE(json_file_holds(json_, R"(
assert d['stopped'] == {'after_step': len(d['loss']), 'why': 'a stop was requested'}, d['stopped']
assert len(d['loss']) >= 3 and 0 < d['bits_per_byte'] < 20 and d['tokens_per_s'] > 0
assert d['config']['steps'] == 100000000
)"));
    EXPECT_TRUE(json_file_holds(trace_, "assert len(d['traceEvents']) > 20"));
  }
}

// The sample would take hours.
TEST_F(Stopping, ASecondSignalEndsItAtOnce) {
  Child train(command({"--steps", "100000000", "--eval-blocks", "0", "--sample", "100000000"}));
  ASSERT_TRUE(train.says("step         3/100000000")) << train.out() << train.err();
  train.send(SIGTERM);
  ASSERT_TRUE(train.complains("a second signal ends at once\n")) << train.err();
  const auto begin = Child::Clock::now();
  train.send(SIGINT);
  EXPECT_EQ(train.end(), -SIGINT);
  EXPECT_LT(Child::Clock::now() - begin, std::chrono::seconds(2));
  EXPECT_FALSE(std::filesystem::exists(json_));
}

TEST_F(Stopping, ALossThatIsNotFiniteIsAnErrorThatNamesTheStep) {
  Child train(command({"--steps", "1000", "--lr", "9e5", "--warmup", "0"}));
  EXPECT_EQ(train.end(), 1);
  const std::string begin = "train: the loss is nan at step ";
  const std::size_t at = train.err().find(begin);
  ASSERT_NE(at, std::string::npos) << train.err();
  EXPECT_EQ(train.err().find('\n', at), train.err().size() - 1) << train.err();
  const int step = std::stoi(train.err().substr(at + begin.size()));
  EXPECT_TRUE(json_file_holds(json_, str_cat("step = ", step, R"(
assert d['loss'][step - 1] is None and all(x is not None for x in d['loss'][:step - 1]), d['loss']
assert d['stopped']['after_step'] == len(d['loss']) < 1000
assert d['stopped']['why'].startswith('the loss is ') and d['bits_per_byte'] is None
)")));
  EXPECT_TRUE(json_file_holds(trace_, "assert d['traceEvents']"));
  EXPECT_NE(train.out().find("stopped after step "), std::string::npos) << train.out();
}

TEST_F(Stopping, ARunThatReachesItsLastStepWasNotStopped) {
  train::Options options = small_options(text_);
  options.steps = 3;
  std::stop_source stop;
  WorldOptions world = world_of(options);
  world.stop = stop.get_token();
  const train::Outcome outcome = run_training(options, world);
  EXPECT_EQ(outcome.stopped_after, 0);
  EXPECT_EQ(train::loss_error(options, outcome), "");
  EXPECT_TRUE(json_holds(train::report_json(options, outcome), "assert d['stopped'] is None"));
}

TEST_F(Stopping, AStopBeforeTheFirstStepStillDoesAStepAndScores) {
  for (const int ranks : {1, 2, 4}) {
    train::Options options = small_options(text_);
    options.ranks = ranks;
    options.eval_blocks = 1;
    std::stop_source stop;
    stop.request_stop();
    WorldOptions world = world_of(options);
    world.stop = stop.get_token();
    const train::Outcome outcome = run_training(options, world);
    EXPECT_EQ(outcome.stopped_after, 2);  // the answer of each call is that of the one before
    EXPECT_EQ(outcome.loss.size(), 2U);
    EXPECT_TRUE(outcome.bits_per_byte.has_value());
  }
}

TEST(LossError, NamesStepValueAndWhatWasBefore) {
  train::Options options;
  options.warmup = 10;
  options.lr = 1;
  train::Outcome outcome;
  outcome.loss = {5.5, 4.25};
  EXPECT_EQ(train::loss_error(options, outcome), "");
  outcome.loss.push_back(-std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(train::loss_error(options, outcome),
            "the loss is nan at step 3 (learning rate 0.3; the loss before it is 4.25)");
  outcome.loss = {std::numeric_limits<double>::infinity()};
  EXPECT_EQ(train::loss_error(options, outcome), "the loss is inf at step 1 (learning rate 0.1)");
}

// The last step's update is seen by the score alone.
TEST(LossError, AScoreThatIsNotFiniteIsOneToo) {
  train::Options options;
  train::Outcome outcome;
  outcome.loss = {5.5, 4.25};
  outcome.bits_per_byte = 2.5;
  EXPECT_EQ(train::loss_error(options, outcome), "");
  outcome.bits_per_byte = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(train::loss_error(options, outcome), "the held-out score after step 2 is nan");
}

}  // namespace
}  // namespace coshard::testing
