#pragma once
// What is drawn from logits: each rank looks at its part of the vocabulary, and what the ranks found
// is joined. Pure functions on the host; any thread.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace coshard::nn {

// A token and its logit in one number, ordered by logit, then from the last token to the first. A
// logit that is not a number is above all others.
constexpr std::int64_t kNoToken = INT64_MIN;  // below all
std::int64_t packed(float logit, std::int64_t token);
float logit_of(std::int64_t packed);
std::int64_t token_of(std::int64_t packed);

// The noise of Gumbel's distribution: the largest logit + noise is a draw from the softmax (Gumbel
// 1954, Maddison et al. 2014).
struct Noise {
  std::uint64_t seed;
  std::int64_t prompt, step;
  double of(std::int64_t token) const;
};

// Logits of the tokens [first, first + logits.size()).
struct VocabularyPart {
  std::span<float> logits;
  std::int64_t first;
};
void penalize(const VocabularyPart& part, std::span<const std::int64_t> seen, double penalty);
std::int64_t most_likely(const VocabularyPart& part);                             // packed
std::int64_t drawn(const VocabularyPart& part, double temperature, Noise noise);  // packed

// What a rank tells of its part: the sum of exp(logit / temperature), and its most likely tokens.
struct Candidates {
  float highest, sum;                    // sum: of exp((logit - highest) / temperature)
  std::span<const std::int64_t> tokens;  // packed, from the most likely on; kNoToken: no more
};
// Writes them to `to`: highest and sum in one number, then to.size() - 1 tokens.
void write_candidates(const VocabularyPart& part, double temperature, std::span<std::int64_t> to);
Candidates read_candidates(std::span<const std::int64_t> from);

struct Choice {
  double temperature;
  std::int64_t top_k;
  double top_p;
};
// Draws one of the tokens that top_k and top_p leave. nullopt: not enough candidates to say.
std::optional<std::int64_t> draw_of(std::span<const Candidates> parts, const Choice& choice,
                                    Noise noise);

}  // namespace coshard::nn
