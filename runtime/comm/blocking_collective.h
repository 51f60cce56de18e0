#pragma once
// The MPI library's own collectives between processes, for benchmarks to compare with ours.

namespace coshard {

// On f32, with `elements` in the whole buffer, a power of two. AllToAll: of a matrix of 64 columns,
// sharded by rows before and by columns after.
enum class BlockingCollective { AllReduce, AllReduceInPlace, AllGather, ReduceScatter, AllToAll };

}  // namespace coshard
