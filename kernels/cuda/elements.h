#pragma once
// Iteration of the elementwise kernels over arrays of one shape: every thread takes packs of kSize
// adjacent elements, kDeep packs at a time so that enough loads are in flight. Arrays may be dense
// (any common alignment gives 16-byte accesses, with single elements at both ends), or have dense
// or broadcast runs of whole packs along the last dimension. All others are processed element by
// element (kSize = 1). Used by the .cu files only.
#include "kernels/cuda/strided.h"
#include "kernels/cuda/typed.h"
#include "runtime/device/cuda/pack.h"

namespace coshard::kernels::cuda {

template <class T, int N>
struct Tile {
  T at[N];
};

// A kernel member. Steps: 1, or 0 if an array is broadcast along a pack.
template <int V>
struct Elements {
  StridedIndex<V> index;  // indexes packs
  std::int64_t count = 0, packs = 0;
  std::int64_t shift = 0;  // one run: elements missing at the front of the first pack
  int steps[V] = {};
  bool run = false;      // all elements are one run
  bool aligned = false;  // packs are aligned in all arrays
};

// Where a thread's packs are. Elements before the first or after the last read as T{}, and are not
// written.
template <int kSize, int kDeep, int V>
struct Places {
  static constexpr int kCount = kSize * kDeep;
  const Elements<V>& all;
  std::int64_t first[kDeep];  // index of the first element; count or more: none
  std::int64_t at[kDeep][V];
  bool whole;  // all packs are whole

  CS_BODY Places(const Elements<V>& elements, std::int64_t pack, std::int64_t apart)
      : all(elements), whole(elements.aligned) {
    CS_UNROLL
    for (int k = 0; k < kDeep; ++k) {
      first[k] = (pack + k * apart) * kSize - all.shift;
      whole = whole && first[k] >= 0 && first[k] + kSize <= all.count;
      if (all.run) {
        for (int v = 0; v < V; ++v) at[k][v] = first[k] * all.steps[v];
      } else if (first[k] < all.count) {
        all.index.offsets(pack + k * apart, at[k]);
      }
    }
  }

  CS_BODY bool has(int k, int e) const { return first[k] + e >= 0 && first[k] + e < all.count; }

  template <class T>
  CS_BODY Tile<T, kCount> load(int v, const T* from) const {
    Tile<T, kCount> tile;
    if (whole && all.steps[v] == 1) {
      CS_UNROLL
      for (int k = 0; k < kDeep; ++k) {
        const Pack<T, kSize> pack = load_pack<kSize>(from + at[k][v]);
        CS_UNROLL
        for (int e = 0; e < kSize; ++e) tile.at[k * kSize + e] = pack.at[e];
      }
    } else {
      CS_UNROLL
      for (int k = 0; k < kDeep; ++k) {
        CS_UNROLL
        for (int e = 0; e < kSize; ++e)
          tile.at[k * kSize + e] = has(k, e) ? from[at[k][v] + e * all.steps[v]] : T{};
      }
    }
    return tile;
  }

  template <class T>
  CS_BODY void store(int v, T* to, const Tile<T, kCount>& tile) const {
    if (whole) {
      CS_UNROLL
      for (int k = 0; k < kDeep; ++k) {
        Pack<T, kSize> pack;
        CS_UNROLL
        for (int e = 0; e < kSize; ++e) pack.at[e] = tile.at[k * kSize + e];
        store_pack<kSize>(to + at[k][v], pack);
      }
    } else {
      CS_UNROLL
      for (int k = 0; k < kDeep; ++k) {
        CS_UNROLL
        for (int e = 0; e < kSize; ++e)
          if (has(k, e)) to[at[k][v] + e] = tile.at[k * kSize + e];
      }
    }
  }
};

// Calls body(places) until all packs are processed.
template <int kSize, int kDeep, int V, class Body>
CS_BODY void each_pack(Block& block, const Elements<V>& all, const Body& body) {
  const std::int64_t threads = block.threads();
  const std::int64_t turn = threads * kDeep;
  for (std::int64_t pack = block.index() * turn + block.thread(); pack < all.packs;
       pack += block.count() * turn)
    body(Places<kSize, kDeep, V>(all, pack, threads));
}

// One array of the iteration, for alignment checks. Null data: absent.
struct Operand {
  const void* data;
  std::size_t bytes;  // of an element
  std::uintptr_t misaligned(int pack) const {
    return reinterpret_cast<std::uintptr_t>(data) / bytes % static_cast<std::uintptr_t>(pack);
  }
};

// One run of `count` elements; the first operand is dense.
template <int V>
Elements<V> run_of(std::int64_t count, int pack, const std::array<Operand, V>& operands) {
  Elements<V> all;
  all.run = all.aligned = true;
  all.count = count;
  for (std::size_t v = 0; v < V; ++v) {
    all.steps[v] = operands[v].data != nullptr ? 1 : 0;
    if (all.steps[v] == 0) continue;
    all.aligned = all.aligned && operands[v].misaligned(pack) == operands[0].misaligned(pack);
  }
  if (all.aligned) all.shift = static_cast<std::int64_t>(operands[0].misaligned(pack));
  all.packs = (count + all.shift + pack - 1) / pack;
  return all;
}

// Whether the last dimension is dense or broadcast in every array, and packs of it are aligned.
template <int V>
bool has_packs(const StridedIndex<V>& index, int pack, const std::array<Operand, V>& operands) {
  const int last = index.ndim - 1;
  if (index.shape[last] % pack != 0) return false;
  for (std::size_t v = 0; v < V; ++v) {
    const std::int64_t step = index.strides[v][last];
    if (operands[v].data == nullptr || (step == 0 && v > 0)) continue;
    if (step != 1 || operands[v].misaligned(pack) != 0) return false;
    for (int d = 0; d < last; ++d)
      if (index.strides[v][d] % pack != 0) return false;
  }
  return true;
}

// Views of one shape, the first of which is written. `pack`: elements per pack; set to 1 if packs
// are not possible.
template <int V>
Elements<V> elements_of(const std::array<const View*, V>& views, int& pack) {
  const StridedIndex<V> index = strided_index<V>(views);
  std::array<Operand, V> operands;
  bool run = index.ndim <= 1;
  for (std::size_t v = 0; v < V; ++v) {
    const std::int64_t step = index.ndim == 0 ? 1 : index.strides[v][0];
    const bool broadcast = v > 0 && index.ndim == 1 && step == 0;
    operands[v] = {broadcast ? nullptr : views[v]->data, size_of(views[v]->dtype)};
    run = run && (step == 1 || broadcast);
  }
  if (run) return run_of<V>(index.count, pack, operands);
  Elements<V> all;
  all.index = index;
  all.count = index.count;
  all.aligned = true;
  const int last = index.ndim - 1;
  if (index.count == 0 || !has_packs<V>(index, pack, operands)) pack = 1;
  for (int v = 0; v < V; ++v) {
    all.steps[v] = pack == 1 ? 1 : static_cast<int>(index.strides[v][last]);
    all.index.strides[v][last] *= pack;
  }
  all.index.shape[last] /= pack;
  all.index.settle();
  all.packs = index.count / pack;
  return all;
}

}  // namespace coshard::kernels::cuda
