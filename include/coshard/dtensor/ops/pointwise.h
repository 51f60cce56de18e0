#pragma once
// What operators share that work element by element: how Partials pass through a function of one
// tensor, and the shape that inputs broadcast to.
#include <coshard/dtensor/ops/letters.h>

namespace coshard {

// Which Partials pass through f, one argument of it being Partial and all others Replicate.
enum class Pass : std::uint8_t {
  Nothing,
  Linear,   // f(a + b) = f(a) + f(b): sum, avg
  Affine,   // f((a + b) / 2) = (f(a) + f(b)) / 2: avg
  Rising,   // f(max(a, b)) = max(f(a), f(b)), so max and min
  Falling,  // f(max(a, b)) = min(f(a), f(b)): max becomes min, min becomes max
};
// Adds to `rule` the strategies in which input `at` is Partial.
void pass_one(Rule& rule, std::size_t at, Pass pass);
// Of x * factor and x / factor: linear, rising or falling by the sign; nothing where the factor is
// no finite number.
void pass_scaled(Rule& rule, std::size_t at, double factor);

// The shape that all inputs broadcast to, with the first one's dtype, which all must have.
std::vector<TensorInfo> broadcast_infer(std::string_view op, Infos in);

}  // namespace coshard
