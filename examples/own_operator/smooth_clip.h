#pragma once
// A user-defined operator: limit * tanh(x / limit), which keeps logits within ±limit. Used on the
// rank's thread.
#include <coshard/coshard.h>
#include <coshard/op.h>

namespace own {

namespace cs = coshard;

// Moves nothing for shards; a Partial is reduced first. Twice differentiable.
cs::Tensor smooth_clip(const cs::Tensor& x, double limit);

}  // namespace own
