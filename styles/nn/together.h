#pragma once
// Several linear layers with one input. Rank's thread.
#include <vector>

#include <coshard/styles/nn/linear.h>

namespace coshard::nn {

// The output of each layer for x, computed one after the other; if x arrives by shards, each shard
// is multiplied by all weights as it arrives, unless adapters draw a dropout: one after the other.
Task<std::vector<Tensor>> forward_together(Tensor x, std::vector<Linear*> layers);

}  // namespace coshard::nn
