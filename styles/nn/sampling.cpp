#include "styles/nn/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/philox.h"

namespace coshard::nn {
namespace {

// Ordered as the numbers are.
std::int32_t order_of(float value) {
  if (std::isnan(value)) return INT32_MAX;
  const auto bits = std::bit_cast<std::int32_t>(value + 0.0F);  // -0 is 0
  return bits < 0 ? bits ^ INT32_MAX : bits;
}

float value_of_order(std::int32_t order) {
  if (order == INT32_MAX) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(order < 0 ? order ^ INT32_MAX : order);
}

double weight(float logit, float highest, double temperature) {
  return std::exp((static_cast<double>(logit) - static_cast<double>(highest)) / temperature);
}

// The token whose score is highest is drawn. Scores are logits with noise, not divided by the
// temperature: they are finite where a small one divides.
std::int64_t scored(float logit, double temperature, const Noise& noise, std::int64_t token) {
  return packed(static_cast<float>(static_cast<double>(logit) + temperature * noise.of(token)),
                token);
}

// All candidates of which no rank has a better one that it did not tell, in order.
struct Known {
  std::vector<std::int64_t> tokens;
  bool all;  // of the vocabulary
};
Known known_of(std::span<const Candidates> parts) {
  Known known{{}, true};
  std::int64_t least = kNoToken;  // below it, a rank may have more
  for (const Candidates& part : parts) {
    for (const std::int64_t token : part.tokens)
      if (token != kNoToken) known.tokens.push_back(token);
    if (part.tokens.empty() || part.tokens.back() == kNoToken) continue;
    known.all = false;
    least = std::max(least, part.tokens.back());
  }
  std::sort(known.tokens.begin(), known.tokens.end(), std::greater<>());
  const auto end =
      std::upper_bound(known.tokens.begin(), known.tokens.end(), least, std::greater<>());
  known.tokens.erase(end, known.tokens.end());
  return known;
}

// The number of tokens that top_k leaves: k, and those as likely as the last of them.
std::optional<std::size_t> left_by_top_k(const Known& known, std::int64_t top_k) {
  const auto k = static_cast<std::size_t>(top_k);
  if (k == 0 || known.tokens.size() < k) {
    if (k == 0 || !known.all) return std::nullopt;
    return known.tokens.size();
  }
  std::size_t end = k;
  const float last = logit_of(known.tokens[k - 1]);
  while (end < known.tokens.size() && logit_of(known.tokens[end]) == last) ++end;
  if (end == known.tokens.size() && !known.all) return std::nullopt;
  return end;
}

// Those before which less than top_p lies.
std::optional<std::size_t> left_by_top_p(std::span<const std::int64_t> tokens, bool all,
                                         double total, float highest, const Choice& choice) {
  // The total is rounded in each rank's part: where exactly top_p lies before a token, this settles
  // it alike on any number of ranks.
  const double limit = choice.top_p * total * (1 - 1e-6);
  double before = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && before >= limit) return i;
    before += weight(logit_of(tokens[i]), highest, choice.temperature);
  }
  if (all) return tokens.size();
  return std::nullopt;
}

}  // namespace

std::int64_t packed(float logit, std::int64_t token) {
  const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(order_of(logit)));
  return static_cast<std::int64_t>(high << 32 | ~static_cast<std::uint32_t>(token));
}
float logit_of(std::int64_t packed) {
  return value_of_order(static_cast<std::int32_t>(packed >> 32));
}
std::int64_t token_of(std::int64_t packed) { return ~static_cast<std::uint32_t>(packed); }

double Noise::of(std::int64_t token) const {
  const auto number = static_cast<std::uint64_t>(token);
  const kernels::Words words = kernels::philox(
      {static_cast<std::uint32_t>(number / 4), static_cast<std::uint32_t>(step),
       static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(prompt >> 32)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const double uniform = (static_cast<double>(words[number % 4]) + 0.5) * 0x1p-32;
  return -std::log(-std::log(uniform));
}

void penalize(const VocabularyPart& part, std::span<const std::int64_t> seen, double penalty) {
  const auto by = static_cast<float>(penalty);
  for (const std::int64_t token : seen) {
    const std::int64_t at = token - part.first;
    if (at < 0 || at >= static_cast<std::int64_t>(part.logits.size())) continue;
    float& logit = part.logits[static_cast<std::size_t>(at)];
    logit = logit > 0 ? logit / by : logit * by;
  }
}

std::int64_t most_likely(const VocabularyPart& part) {
  if (part.logits.empty()) return kNoToken;
  std::size_t best = 0;
  for (std::size_t i = 0; i < part.logits.size(); ++i) {
    if (!(part.logits[i] <= part.logits[best])) best = i;
    if (std::isnan(part.logits[i])) break;
  }
  return packed(part.logits[best], part.first + static_cast<std::int64_t>(best));
}

std::int64_t drawn(const VocabularyPart& part, double temperature, Noise noise) {
  std::int64_t best = kNoToken;
  for (std::size_t i = 0; i < part.logits.size(); ++i) {
    const std::int64_t token = part.first + static_cast<std::int64_t>(i);
    best = std::max(best, scored(part.logits[i], temperature, noise, token));
  }
  return best;
}

void write_candidates(const VocabularyPart& part, double temperature, std::span<std::int64_t> to) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float logit : part.logits)
    if (!(logit <= highest)) highest = logit;
  double sum = 0;
  for (const float logit : part.logits)
    if (logit != -std::numeric_limits<float>::infinity())
      sum += weight(logit, highest, temperature);
  to[0] = static_cast<std::int64_t>(std::uint64_t{std::bit_cast<std::uint32_t>(highest)} << 32 |
                                    std::bit_cast<std::uint32_t>(static_cast<float>(sum)));
  const std::span<std::int64_t> tokens = to.subspan(1);
  std::fill(tokens.begin(), tokens.end(), kNoToken);
  if (tokens.empty()) return;
  std::size_t count = 0;  // a heap whose front is the least likely of the most likely
  for (std::size_t i = 0; i < part.logits.size(); ++i) {
    const std::int64_t token = packed(part.logits[i], part.first + static_cast<std::int64_t>(i));
    if (count == tokens.size()) {
      if (token < tokens[0]) continue;
      std::pop_heap(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count--),
                    std::greater<>());
    }
    tokens[count++] = token;
    std::push_heap(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  }
  std::sort(tokens.begin(), tokens.end(), std::greater<>());
}

Candidates read_candidates(std::span<const std::int64_t> from) {
  const auto both = static_cast<std::uint64_t>(from[0]);
  return {std::bit_cast<float>(static_cast<std::uint32_t>(both >> 32)),
          std::bit_cast<float>(static_cast<std::uint32_t>(both)), from.subspan(1)};
}

std::optional<std::int64_t> draw_of(std::span<const Candidates> parts, const Choice& choice,
                                    Noise noise) {
  const Known known = known_of(parts);
  if (known.tokens.empty()) return std::nullopt;
  const float highest = logit_of(known.tokens.front());
  std::span<const std::int64_t> left = known.tokens;
  bool all = known.all;
  double total = 0;
  if (choice.top_k > 0) {
    const auto count = left_by_top_k(known, choice.top_k);
    if (!count) return std::nullopt;
    left = left.first(*count);
    all = true;  // of those that are left
    for (const std::int64_t token : left)
      total += weight(logit_of(token), highest, choice.temperature);
  } else {
    for (const Candidates& part : parts)
      if (part.sum > 0)
        total += static_cast<double>(part.sum) * weight(part.highest, highest, choice.temperature);
  }
  const auto count = left_by_top_p(left, all, total, highest, choice);
  if (!count) return std::nullopt;
  std::int64_t best = kNoToken;
  for (const std::int64_t token : left.first(*count)) {
    best = std::max(best, scored(logit_of(token), choice.temperature, noise, token_of(token)));
  }
  return best;
}

}  // namespace coshard::nn
