#pragma once
// Several linear layers of one input. Rank's thread.
#include <vector>

#include <coshard/styles/nn/linear.h>

namespace coshard::nn {

// What each layer makes of x, one after the other; if x arrives by shards, each shard is multiplied
// by all of them as it arrives.
Task<std::vector<Tensor>> forward_together(Tensor x, std::vector<Linear*> layers);

}  // namespace coshard::nn
