#pragma once
// How messages along a dimension of a mesh are timed. Rank's thread; called by all ranks of the
// world together.
#include <cstdint>
#include <vector>

#include <coshard/dtensor/device_mesh.h>

namespace coshard {

// The shortest time in ns of gathering `count` floats from each rank along a mesh of one dimension,
// of `runs` that follow `warm_up` others; 0 on a rank outside it.
Task<double> time_to_gather(DeviceMesh line, std::int64_t count, int runs, int warm_up);
// The largest that any rank of the world has, place by place. One all_reduce over the world.
Task<std::vector<double>> largest_of_all(World& world, std::vector<double> found);

}  // namespace coshard
