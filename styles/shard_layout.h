#pragma once
// Where the parameters of a group lie in one buffer on each rank, each aligned for every kernel,
// and where their elements are in what the ranks exchange: densely, rank by rank.
#include <functional>
#include <memory>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/communicator.h>

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
  // Elements that lie `begin` from the buffer's first, and `offset` from the exchanged data's.
  struct Block {
    Shape size;
    std::int64_t begin, offset;
    Strides strides, packed;  // in the buffer, and in the data
  };
  std::vector<Block> blocks;  // by rank
};

// Of those parameters of a group for which `included` is true.
std::shared_ptr<const ShardLayout> shard_layout(
    const std::vector<ShardedParameter>& parameters, DType dtype, int ranks, int own_rank,
    const std::function<bool(const ShardedParameter&)>& included);
// From the buffer to what the ranks exchange, and back; may cast. Neither waits.
void pack(const Tensor& buffer, const Tensor& data, const ShardLayout& layout);
void unpack(const Tensor& data, const Tensor& buffer, const ShardLayout& layout);

}  // namespace coshard
