// Frequencies of rotary positions: Su et al. 2021; Chen et al. 2023 (linear); bloc97 and emozilla
// (dynamic NTK); Peng et al. 2023 (yarn); Llama 3.1. In f32, operation by operation as transformers
// computes them: at position 60,000 the last bit of a frequency is 0.004 radians.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <coshard/runtime/error.h>
#include <coshard/styles/nn/causal_lm_config.h>

namespace coshard::nn {
namespace {

float power(float base, double exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), exponent));
}

// theta^(2i/dim), the inverse of each frequency of the default type.
std::vector<float> periods(double theta, std::int64_t dim) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < dim; i += 2)
    values.push_back(
        power(static_cast<float>(theta), static_cast<float>(i) / static_cast<float>(dim)));
  return values;
}

// The base of a sequence that is longer than the model's.
double dynamic_theta(const RopeConfig& rope, std::int64_t dim, std::int64_t most,
                     std::int64_t seq) {
  if (seq <= most) return rope.theta;
  const float length = static_cast<float>(rope.factor) * static_cast<float>(seq);
  const float stretch = length / static_cast<float>(most) - static_cast<float>(rope.factor - 1);
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  return static_cast<float>(rope.theta) * power(stretch, exponent);
}

// torch's number / tensor.
float divided(double number, float by) { return 1 / by * static_cast<float>(number); }

float llama3_frequency(const RopeConfig& rope, double original, float frequency) {
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = divided(2 * std::numbers::pi, frequency);
  if (wavelength < static_cast<float>(original / rope.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(original / rope.low_freq_factor)) return frequency / factor;
  const float smooth = (divided(original, wavelength) - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const float rest = (1 - smooth) * frequency;
  return rest / factor + smooth * frequency;
}

// Between which pairs yarn goes over from the old frequencies to those divided by the factor.
struct Ramp {
  double low, high;
};
Ramp yarn_ramp(const RopeConfig& rope, std::int64_t dim, double original) {
  const auto pair_of = [&](double turns) {
    return static_cast<double>(dim) * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  return {low, low == high ? high + 0.001 : high};
}

void apply_yarn(const RopeConfig& rope, std::int64_t dim, double original,
                std::vector<float>& periods) {
  const Ramp ramp = yarn_ramp(rope, dim, original);
  for (std::size_t i = 0; i < periods.size(); ++i) {
    const float along = (static_cast<float>(i) - static_cast<float>(ramp.low)) /
                        static_cast<float>(ramp.high - ramp.low);
    const float keep = 1 - std::clamp(along, 0.0F, 1.0F);
    const float scaled = 1 / (static_cast<float>(rope.factor) * periods[i]) * (1 - keep);
    periods[i] = scaled + 1 / periods[i] * keep;  // a frequency now
  }
}

double yarn_scaling(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto of = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1;
  };
  const double mscale = rope.mscale.value_or(0), all = rope.mscale_all_dim.value_or(0);
  return mscale != 0 && all != 0 ? of(mscale) / of(all) : of(1);
}

}  // namespace

RotaryTable rotary_table(const RopeConfig& rope, std::int64_t head_dim,
                         std::int64_t max_position_embeddings, std::int64_t seq) {
  CS_REQUIRE(head_dim > 0 && head_dim % 2 == 0 && rope.theta > 0 && rope.factor > 0,
             "rotary positions: head_dim ", head_dim, " must be even, theta ", rope.theta,
             " and factor ", rope.factor, " positive");
  const std::int64_t given = rope.original_max_position_embeddings;
  const auto original = static_cast<double>(given > 0 ? given : max_position_embeddings);
  double theta = rope.theta;
  if (rope.type == RopeType::Dynamic) {
    CS_REQUIRE(head_dim > 2, "rotary positions: dynamic needs a head_dim above 2, got ", head_dim);
    theta = dynamic_theta(rope, head_dim, max_position_embeddings, seq);
  }
  std::vector<float> values = periods(theta, head_dim);
  if (rope.type == RopeType::Yarn) {
    apply_yarn(rope, head_dim, original, values);
    return RotaryTable(std::move(values), yarn_scaling(rope));
  }
  for (float& value : values) {
    value = 1 / value;
    if (rope.type == RopeType::Linear) value /= static_cast<float>(rope.factor);
    if (rope.type == RopeType::Llama3) value = llama3_frequency(rope, original, value);
  }
  return RotaryTable(std::move(values));
}

}  // namespace coshard::nn
