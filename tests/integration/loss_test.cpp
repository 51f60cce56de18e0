#include <gtest/gtest.h>

#include <cmath>

#include <coshard/runtime/sanitizers.h>
#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

using train::Options;

// Which looks at what a step does, not at what many learn.
constexpr bool kSanitized = COSHARD_ASAN || COSHARD_TSAN;

void expect_close(const std::vector<double>& one, const std::vector<double>& many, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(one.size(), many.size());
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    worst = std::max(worst, std::abs(one[i] - many[i]) / std::abs(one[i]));
  EXPECT_LE(worst, tolerance) << what;
  ::testing::Test::RecordProperty("worst_" + what, str_cat(worst));
}

void expect_ranks_agree(const std::string& dtype, double tolerance) {
  const TextFile text;
  Options options = small_options(text);
  options.dtype_name = dtype;
  options.batch = 4;
  if (kSanitized) options.steps = 8;
  const std::vector<double> one = run_training(options).loss;
  ASSERT_EQ(one.size(), kSanitized ? 8U : 50U);
  EXPECT_LT(one.back(), (kSanitized ? 1.0 : 0.8) * one.front());
  for (const char* plan : {"tp", "tp-sp", "dp", "fsdp"}) {
    for (const int ranks : {2, 4}) {
      options.ranks = ranks;
      options.plan = plan;
      expect_close(one, run_training(options).loss, tolerance,
                   std::string(plan) + std::to_string(ranks));
    }
  }
}

TEST(Training, LossesOfOneTwoAndFourRanksAgreeInF64) { expect_ranks_agree("f64", 1e-10); }

TEST(Training, LossesOfOneTwoAndFourRanksAgreeInF32) { expect_ranks_agree("f32", 1e-4); }

TEST(Training, LearnsInBf16) {
  const TextFile text;
  Options options = small_options(text);
  options.dtype_name = "bf16";
  options.ranks = 2;
  const std::vector<double> losses = run_training(options).loss;
  EXPECT_LT(losses.back(), 0.8 * losses.front());
}

TEST(Training, TheSameRunTwiceIsBitwiseEqual) {
  const TextFile text;
  Options options = small_options(text);
  options.ranks = 2;
  options.threads = 1;
  options.sample = 20;
  options.plan = "tp-sp";
  const train::Outcome first = run_training(options), second = run_training(options);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.sample, second.sample);
}

// Sums are in rank order, whenever gradients leave.
TEST(Training, OverlapsTheGradientsOfReplicasBitwise) {
  const TextFile text;
  Options options = small_options(text);
  options.steps = 10;
  options.batch = 4;
  options.ranks = 4;
  options.plan = "dp";
  options.overlap = "off";
  const std::vector<double> after = run_training(options).loss;
  options.overlap = "auto";
  EXPECT_EQ(run_training(options).loss, after);
}

// 3 sequences in 2 parts as well.
TEST(Training, LossesOfWovenStepsAreThoseWithout) {
  const TextFile text;
  Options options = small_options(text);
  options.dtype_name = "f64";
  options.steps = kSanitized ? 3 : 10;
  options.ranks = 2;
  for (const char* plan : {"tp", "tp-sp", "dp", "fsdp"})
    for (const int sequences : {2, 3}) {
      options.plan = plan;
      options.batch = options.data_parallel() ? options.ranks * sequences : sequences;
      options.weave = 1;
      const std::vector<double> plain = run_training(options).loss;
      options.weave = 2;
      expect_close(plain, run_training(options).loss, 1e-10,
                   std::string(plan) + "_weave_" + std::to_string(sequences));
    }
}

TEST(Training, AnotherSeedGivesAnotherRun) {
  const TextFile text;
  Options options = small_options(text);
  options.steps = 2;
  const std::vector<double> first = run_training(options).loss;
  options.seed = 2;
  EXPECT_NE(first, run_training(options).loss);
}

TEST(Training, ScoresHeldOutBytesAlikeOnOneAndTwoRanks) {
  const TextFile text(200'000);
  Options options = small_options(text);
  options.dtype_name = "f64";
  options.steps = 20;
  options.eval_blocks = 1;
  options.sample = 12;
  const train::Outcome one = run_training(options);
  options.ranks = 2;
  const train::Outcome two = run_training(options);
  ASSERT_TRUE(one.bits_per_byte && two.bits_per_byte);
  EXPECT_NEAR(*one.bits_per_byte, *two.bits_per_byte, 1e-9);
  EXPECT_LT(*one.bits_per_byte, 8);
  EXPECT_EQ(one.sample, two.sample);
  EXPECT_EQ(one.sample.size(), 12U);
}

TEST(Training, TheRateWarmsUpAndFallsToATenth) {
  Options options;
  options.lr = 1;
  options.warmup = 10;
  options.steps = 110;
  EXPECT_DOUBLE_EQ(train::learning_rate(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(train::learning_rate(options, 9), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(options, 60), 0.55);
  EXPECT_NEAR(train::learning_rate(options, 109), 0.1, 1e-3);
}

}  // namespace
}  // namespace coshard::testing
