#include "styles/nn/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

namespace coshard::nn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0, 2);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = draw(engine);
  return logits;
}

// Draws from `logits` cut into `parts` parts, with `count` candidates each.
std::optional<std::int64_t> draw_in_parts(std::vector<float> logits, std::size_t parts,
                                          std::size_t count, const Choice& choice, Noise noise) {
  std::vector<std::vector<std::int64_t>> told;
  const std::size_t each = (logits.size() + parts - 1) / parts;
  for (std::size_t begin = 0, i = 0; i < parts; ++i, begin += each) {
    const std::size_t from = std::min(begin, logits.size());
    const std::size_t size = std::min(each, logits.size() - from);
    told.emplace_back(count + 1);
    write_candidates({std::span(logits).subspan(from, size), static_cast<std::int64_t>(from)},
                     choice.temperature, told.back());
  }
  std::vector<Candidates> candidates;
  for (const auto& numbers : told) candidates.push_back(read_candidates(numbers));
  return draw_of(candidates, choice, noise);
}

// The probabilities that transformers' warpers leave, one by one and unhurried.
std::map<std::int64_t, double> warped(const std::vector<float>& logits, const Choice& choice) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::size_t i = 0; i < logits.size(); ++i)
    order.emplace_back(double(logits[i]) / choice.temperature, std::int64_t(i));
  std::sort(order.begin(), order.end(), std::greater<>());
  if (choice.top_k > 0 && order.size() > std::size_t(choice.top_k))
    order.resize(std::size_t(choice.top_k));
  double sum = 0;
  for (const auto& [score, token] : order) sum += std::exp(score);
  std::map<std::int64_t, double> left;
  double before = 0, mass = 0;
  for (const auto& [score, token] : order) {
    if (!left.empty() && before >= choice.top_p) break;
    left[token] = std::exp(score) / sum;
    before += std::exp(score) / sum;
    mass += std::exp(score) / sum;
  }
  for (auto& [token, probability] : left) probability /= mass;
  return left;
}

TEST(Sampling, PackedTokensKeepOrderAndValues) {
  const float values[] = {-kInf, -3.5F, -1e-30F, 0, 1e-30F, 2, kInf};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i) {
    EXPECT_LT(packed(values[i], 7), packed(values[i + 1], 7));
    EXPECT_EQ(logit_of(packed(values[i], 7)), values[i]);
    EXPECT_EQ(token_of(packed(values[i], 123456)), 123456);
  }
  EXPECT_GT(packed(1, 3), packed(1, 4));
  EXPECT_EQ(packed(-0.0F, 3), packed(0.0F, 3));
  EXPECT_GT(packed(std::nanf(""), 3), packed(kInf, 0));
  EXPECT_GT(packed(-std::nanf(""), 3), packed(kInf, 0));
  EXPECT_TRUE(std::isnan(logit_of(packed(-std::nanf(""), 3))));
  EXPECT_LT(kNoToken, packed(-kInf, INT32_MAX - 1));
}

TEST(Sampling, GreedyTakesTheFirstOfEqualLogits) {
  std::vector<float> logits = {1, 5, 2, 5, -1};
  EXPECT_EQ(token_of(most_likely({logits, 100})), 101);
  EXPECT_EQ(most_likely({std::span<float>(), 100}), kNoToken);
  logits[3] = -std::nanf("");
  EXPECT_TRUE(std::isnan(logit_of(most_likely({logits, 0}))));
}

TEST(Sampling, PenaltyDividesPositiveAndMultipliesNegative) {
  std::vector<float> logits = {2, -2, 4, 0};
  const std::int64_t seen[] = {9, 10, 11, 13, 50};
  penalize({logits, 10}, seen, 2);
  EXPECT_EQ(logits, (std::vector<float>{1, -4, 4, 0}));
}

TEST(Sampling, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = logits_of(20, 3);
  const std::map<std::int64_t, double> want = warped(logits, {0.8, 0, 1});
  constexpr int kDraws = 100'000;
  std::map<std::int64_t, int> counts;
  for (int step = 0; step < kDraws; ++step) {
    std::vector<float> copy = logits;
    ++counts[token_of(drawn({copy, 0}, 0.8, {11, 0, step}))];
  }
  double chi = 0;
  for (const auto& [token, p] : want) chi += std::pow(counts[token] - kDraws * p, 2) / (kDraws * p);
  EXPECT_LT(chi, 43.8);  // 19 degrees of freedom, 0.1 %
}

TEST(Sampling, TopKAndTopPLeaveWhatWarpersLeave) {
  for (const Choice& choice : {Choice{1, 5, 1}, Choice{0.7, 0, 0.9}, Choice{1.5, 7, 0.6},
                               Choice{1, 1, 1}, Choice{1, 0, 1e-9}, Choice{2, 1000, 0.99}}) {
    const std::vector<float> logits = logits_of(40, 9);
    const std::map<std::int64_t, double> want = warped(logits, choice);
    constexpr int kDraws = 40'000;
    std::map<std::int64_t, int> counts;
    for (int step = 0; step < kDraws; ++step) {
      const auto token = draw_in_parts(logits, 3, 41, choice, {5, 2, step});
      ASSERT_TRUE(token);
      ++counts[token_of(*token)];
    }
    for (const auto& [token, count] : counts) EXPECT_TRUE(want.contains(token)) << token;
    for (const auto& [token, p] : want)
      EXPECT_NEAR(counts[token], kDraws * p, 5 * std::sqrt(kDraws * p) + 1) << token;
  }
}

TEST(Sampling, DrawsDoNotDependOnTheParts) {
  for (int step = 0; step < 300; ++step) {
    const std::vector<float> logits = logits_of(97, unsigned(step));
    const Choice choice{0.9, step % 3 == 0 ? 0 : 12, step % 2 == 0 ? 0.8 : 1.0};
    const Noise noise{7, step % 5, step};
    const auto whole = draw_in_parts(logits, 1, 98, choice, noise);
    ASSERT_TRUE(whole);
    for (const std::size_t parts : {2, 3, 4, 60}) {
      for (const std::size_t count : {1, 2, 16, 97}) {
        const auto found = draw_in_parts(logits, parts, count, choice, noise);
        EXPECT_EQ(found.value_or(*whole), *whole) << parts << " parts of " << count;
      }
      EXPECT_EQ(draw_in_parts(logits, parts, 98, choice, noise), whole);
    }
    std::vector<float> left(logits.begin(), logits.begin() + 40),
        right(logits.begin() + 40, logits.end());
    std::vector<float> copy = logits;
    EXPECT_EQ(std::max(drawn({left, 0}, 0.9, noise), drawn({right, 40}, 0.9, noise)),
              drawn({copy, 0}, 0.9, noise));
  }
}

TEST(Sampling, TokensAsLikelyAsTheLastAreKept) {
  const std::vector<float> logits = {3, 1, 1, 1, 0, -1};
  std::map<std::int64_t, int> counts;
  for (int step = 0; step < 2000; ++step)
    ++counts[token_of(*draw_in_parts(logits, 2, 4, {1, 2, 1}, {1, 0, step}))];
  EXPECT_EQ(counts.size(), 4U);
  EXPECT_FALSE(draw_in_parts(logits, 2, 1, {1, 2, 1}, {1, 0, 0}));
}

TEST(Sampling, SmallTemperaturesTakeTheMostLikely) {
  for (const double temperature : {1e-3, 1e-30, 1e-40, 1e-300}) {
    std::vector<float> logits = logits_of(30, 4);
    for (float& logit : logits) logit -= 40;
    const std::int64_t want = token_of(most_likely({logits, 0}));
    for (int step = 0; step < 50; ++step) {
      EXPECT_EQ(token_of(drawn({logits, 0}, temperature, {1, 0, step})), want) << temperature;
      EXPECT_EQ(token_of(*draw_in_parts(logits, 2, 31, {temperature, 0, 1}, {1, 0, step})), want);
    }
  }
}

TEST(Sampling, ABorderOfTopPIsTheSameInAnyParts) {
  const std::vector<float> counts = {1, 2, 3, 5, 7, 11, 13, 17, 19, 22};  // of 100
  std::vector<float> logits;
  for (const float count : counts) logits.push_back(std::log(count));
  for (const double top_p : {0.22, 0.41, 0.58, 0.71, 0.82, 0.89, 0.94})
    for (int step = 0; step < 2000; ++step) {
      const auto whole = draw_in_parts(logits, 1, 11, {1, 0, top_p}, {3, 0, step});
      for (const std::size_t parts : {2, 3, 4, 5})
        ASSERT_EQ(draw_in_parts(logits, parts, 11, {1, 0, top_p}, {3, 0, step}), whole) << top_p;
    }
}

TEST(Sampling, NoiseDependsOnAllOfItsNumbers) {
  const double noise = Noise{1, 2, 3}.of(4);
  for (const Noise& other : {Noise{2, 2, 3}, Noise{1, 3, 3}, Noise{1, 2, 4}})
    EXPECT_NE(other.of(4), noise);
  EXPECT_NE(Noise({1, 2, 3}).of(5), noise);
  EXPECT_EQ(Noise({1, 2, 3}).of(4), noise);
}

}  // namespace
}  // namespace coshard::nn
