#pragma once
// Collectives of the MPI between processes, which benches set beside ours.

namespace coshard {

// Of `elements` f32 of the whole, a power of two. AllToAll: of a matrix of 64 columns, whose rows are
// cut before and whose columns are cut after.
enum class BlockingCollective { AllReduce, AllReduceInPlace, AllGather, ReduceScatter, AllToAll };

}  // namespace coshard
