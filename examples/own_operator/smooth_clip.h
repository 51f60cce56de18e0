#pragma once
// An operator of the program's own: limit * tanh(x / limit), which keeps logits within ±limit.
// Used on the rank's thread.
#include <coshard/coshard.h>
#include <coshard/op.h>

namespace own {

namespace cs = coshard;

// On any shards nothing moves; a Partial is reduced first. Differentiable, also twice.
cs::Tensor smooth_clip(const cs::Tensor& x, double limit);

}  // namespace own
