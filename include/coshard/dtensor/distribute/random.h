#pragma once
// Random numbers that do not depend on the sharding: Philox 4x32-10 (Salmon et al., SC'11), keyed
// by the world's seed, with the global element index as counter (tensor/generator.h).
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tensor/generator.h>

#pragma GCC visibility push(default)
namespace coshard {

// In place, on a plain value, or a leaf under a NoGradGuard: normal(mean, std), and uniform on
// [low, high). A Partial gets partial values that reduce to what one device would draw.
// Error{BadInput}: std < 0; low > high, or a range that is infinite or NaN.
void normal_(const Tensor& x, double mean, double std);
void uniform_(const Tensor& x, double low, double high);

}  // namespace coshard
#pragma GCC visibility pop
