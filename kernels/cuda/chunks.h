#pragma once
// A few long lines are split into chunks, so that teams on the whole device work on them; a second
// kernel combines the chunks' results in order, so that they are deterministic. Used by the .cu
// files only.
#include <algorithm>

#include "kernels/args.h"
#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {

struct Chunks {
  std::int64_t count = 1, length = 0;  // per line; elements of all but the last
};

// Enough chunks to occupy the device, each long enough to be worthwhile, in packs of `width`.
inline Chunks chunks_for(const CudaDevice& device, std::int64_t outer, std::int64_t extent,
                         std::int64_t inner, int width) {
  const std::int64_t blocks = inner == 1 ? outer : (outer * inner + 31) / 32;
  const std::int64_t wanted = 4 * device.multiprocessors() / std::max<std::int64_t>(blocks, 1);
  const std::int64_t shortest = inner == 1 ? 8192 : 512;
  const std::int64_t most = std::max<std::int64_t>(extent / shortest, 1);
  const std::int64_t count = std::clamp<std::int64_t>(wanted, 1, most);
  if (count == 1) return {1, extent};
  const std::int64_t length = (extent / width + count - 1) / count * width;
  return {(extent + length - 1) / length, length};
}

// The part of `data` for team `at` of a LineKernel: chunk at / lines of line at % lines; empty past
// the end.
template <int W, class Kernel, class T>
CS_BODY Span<T, W> chunk_of(const Kernel& kernel, const Chunks& chunks, T* data, std::int64_t at) {
  const std::int64_t lines = kernel.lines();
  if (at >= lines * chunks.count) return {data, 0, W};
  const Span<T, W> line = kernel.template span<W>(data, at % lines);
  const std::int64_t packs = chunks.length / W, first = at / lines * packs;
  const std::int64_t left = line.packs - first;
  return {line.at(first), left < packs ? left : packs, line.step};
}

// ReduceDim's statistics of each line, two numbers in the dtype's compute type: mean and sum of
// squares for a variance, maximum and sum of exponentials for LogSumExp, extreme and its number of
// occurrences. `args.y` is not written.
void find_lines(CudaDevice& device, const ReduceDim& args, void* found);

}  // namespace coshard::kernels::cuda
