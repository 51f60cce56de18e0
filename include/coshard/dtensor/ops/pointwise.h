#pragma once
// Shared by elementwise operators: how Partials pass through a function of one tensor, and the
// shape that inputs broadcast to.
#include <coshard/dtensor/ops/axes.h>

#pragma GCC visibility push(default)
namespace coshard {

// Which Partials pass through f, for one Partial argument and all others Replicate.
enum class Pass : std::uint8_t {
  Nothing,
  Linear,              // f(a + b) = f(a) + f(b): sum, avg
  Affine,              // f((a + b) / 2) = (f(a) + f(b)) / 2: avg
  MonotoneIncreasing,  // f(max(a, b)) = max(f(a), f(b)), so max and min
  MonotoneDecreasing,  // f(max(a, b)) = min(f(a), f(b)): max becomes min, min becomes max
};
// Adds to `rule` the strategies in which input `at` is Partial.
void pass_one(Rule& rule, std::size_t at, Pass pass);
// For x * factor and x / factor: linear, and increasing or decreasing by sign; nothing if the
// factor is not finite.
void pass_scaled(Rule& rule, std::size_t at, double factor);

// The shape that all inputs broadcast to; all must have the first one's dtype.
std::vector<TensorInfo> broadcast_infer(std::string_view op, Infos in);

}  // namespace coshard
#pragma GCC visibility pop
