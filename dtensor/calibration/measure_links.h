#pragma once
// Times messages along a mesh dimension. Rank's thread; all ranks of the world call together.
#include <cstdint>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>

namespace coshard {

// The shortest time in ns of an all_gather of `count` floats per rank along a mesh of one
// dimension, over `runs` that follow `warm_up` others; 0 on a rank outside it. `by_shards`: as
// RedistributeOptions.
Task<double> time_to_gather(DeviceMesh line, std::int64_t count, int runs, int warm_up,
                            bool by_shards = false);
// The element-wise maximum over all ranks of the world. One all_reduce over the world.
Task<std::vector<double>> largest_of_all(World& world, std::vector<double> found);

}  // namespace coshard
