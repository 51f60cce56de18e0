#pragma once
// The arithmetic of all_reduce and reduce_scatter between buffers of one process. Any thread.
#include <cstdint>
#include <span>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// targets[t][i] = sources[0][i] op sources[1][i] op ... for i < count, in the order of the sources,
// so that results are bitwise independent of the caller. bf16 and f16 accumulate in f32 and round
// once. A target may be a source. avg divides by the number of sources (integers: towards zero).
void reduce_into(DType dtype, Reduce reduce, std::span<const void* const> sources,
                 std::span<void* const> targets, std::int64_t count);

}  // namespace coshard
