#pragma once
// What an all_gather fills shard by shard. Rank's thread.
#include <optional>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// What a redistribution of `source` to `target` fills shard by shard; nullopt: it does not, or the
// mesh has several dimensions.
std::optional<Gathered> gathered_to(const Tensor& source, const Layout& target);

}  // namespace coshard
