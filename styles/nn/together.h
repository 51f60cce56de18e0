#pragma once
// Several linear layers of one input that is still arriving. Rank's thread.
#include <vector>

#include <coshard/styles/nn/linear.h>

namespace coshard::nn {

// What each layer makes of x; each shard of x is multiplied by all of them as it arrives. Leaves the
// random state as it was: linear layers draw nothing.
Task<std::vector<Tensor>> forward_together(Tensor x, std::vector<Linear*> layers);

}  // namespace coshard::nn
