#pragma once
// Where the parameters of a group lie in one buffer on each rank, each aligned for every kernel,
// and where their elements are in what the ranks exchange: densely, rank by rank.
#include <functional>
#include <memory>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "dtensor/redistribute/blocks.h"

namespace coshard {

struct ShardedParameter;

struct ShardLayout {
  struct Place {
    std::int64_t begin = -1;       // offset in the buffer; -1: left out
    std::int64_t shard_begin = 0;  // offset of this rank's part in the data it sends or gets
  };
  std::vector<Place> places;  // of each parameter
  std::int64_t size = 0;      // elements of the buffer
  Counts counts;              // elements of each rank's parts
  std::int64_t total = 0;     // their sum
  StridedBlocks blocks;       // where the ranks' elements are in the buffer, by rank
};

// Of those parameters of a group for which `included` is true. The rows of each are split over
// `ranks` as torch.chunk does.
std::shared_ptr<const ShardLayout> shard_layout(
    const std::vector<ShardedParameter>& parameters, DType dtype, int ranks, int own_rank,
    const std::function<bool(const ShardedParameter&)>& included);

}  // namespace coshard
