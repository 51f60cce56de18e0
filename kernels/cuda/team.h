#pragma once
// Teams of threads that work on one line of [outer, extent, inner] together, and launches of
// kernels over lines. Sums and extremes of a team are the same in all its threads and in every run:
// trees of fixed shape, no atomics. Used by the .cu files only.
#include <algorithm>
#include <bit>

#include "kernels/cuda/row_packs.h"

namespace coshard::kernels::cuda {

enum class TeamShape : int {
  Warp,     // one warp per line: short lines
  Block,    // one block per line
  Columns,  // 32 lines for each block, a lane of all its warps for each: neighbouring lanes read
            // neighbouring lines
};

constexpr std::size_t kLargestState = 16;  // bytes of a value that a team combines

// A value and its position.
template <class T>
struct Placed {
  T value;
  std::int64_t where;
  template <class F>
  CS_BODY Placed moved(F&& f) const {
    return {f(value), f(where)};
  }
};

template <class T>
struct Two {
  T a, b;
  template <class F>
  CS_BODY Two moved(F&& f) const {
    return {f(a), f(b)};
  }
};

// Lanes exchange `value`, a number or something with moved(), by `move`.
template <class T, class Move>
CS_BODY T moved(const T& value, Move&& move) {
  if constexpr (std::is_arithmetic_v<T>) {
    return move(value);
  } else {
    return value.moved(move);
  }
}

class Team {
 public:
  CS_BODY Team(Block& block, TeamShape shape) : block_(block), shape_(shape) {}

  CS_BODY int rank() const {
    return shape_ == TeamShape::Warp    ? block_.lane()
           : shape_ == TeamShape::Block ? block_.thread()
                                        : block_.warp();
  }
  CS_BODY int size() const {
    return shape_ == TeamShape::Warp    ? kWarp
           : shape_ == TeamShape::Block ? block_.threads()
                                        : block_.threads() / kWarp;
  }
  // Calls f(line) for the team's share of `count` lines. All threads of the block make the same
  // number of calls, so line may be past the end for a team that only takes part in barriers.
  template <class F>
  CS_BODY void each_line(std::int64_t count, F&& f) {
    const int warps = block_.threads() / kWarp;
    const int lines = shape_ == TeamShape::Warp ? warps : shape_ == TeamShape::Block ? 1 : kWarp;
    const int own = shape_ == TeamShape::Warp    ? block_.warp()
                    : shape_ == TeamShape::Block ? 0
                                                 : block_.lane();
    const std::int64_t step = static_cast<std::int64_t>(block_.count()) * lines;
    for (std::int64_t first = static_cast<std::int64_t>(block_.index()) * lines; first < count;
         first += step)
      f(first + own);
  }

  // Combines the values of all threads of the team; `op` is associative and commutative.
  template <class T, class Op>
  CS_BODY T combine(T value, Op&& op) {
    static_assert(sizeof(T) <= kLargestState);
    if (shape_ == TeamShape::Columns) return combine_columns(value, op);
    value = combine_lanes(value, op, kWarp);
    if (shape_ == TeamShape::Warp) return value;
    T* of_warps = block_.template shared<T>();
    const int warps = block_.threads() / kWarp;
    if (block_.lane() == 0) of_warps[block_.warp()] = value;
    block_.barrier();
    value = combine_lanes(of_warps[block_.lane() % warps], op, warps);
    block_.barrier();
    return value;
  }
  template <class T>
  CS_BODY T sum(T value) {
    return combine(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  CS_BODY Two<T> sums(T a, T b) {
    return combine(Two<T>{a, b}, [](const Two<T>& x, const Two<T>& y) {
      return Two<T>{x.a + y.a, x.b + y.b};
    });
  }

 private:
  template <class T, class Op>
  CS_BODY T combine_lanes(T value, Op&& op, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2)
      value = op(value, moved(value, [&](auto v) { return block_.shuffle_xor(v, mask); }));
    return value;
  }
  template <class T, class Op>
  CS_BODY T combine_columns(T value, Op&& op) {
    if (size() == 1) return value;
    T* all = block_.template shared<T>();
    all[block_.thread()] = value;
    block_.barrier();
    value = all[block_.lane()];
    for (int warp = 1; warp < size(); ++warp) value = op(value, all[warp * kWarp + block_.lane()]);
    block_.barrier();
    return value;
  }

  Block& block_;
  TeamShape shape_;
};

// Packs of W elements of one line.
template <class T, int W>
struct Span {
  T* first;
  std::int64_t packs, step;  // elements from pack to pack
  CS_BODY T* at(std::int64_t pack) const { return first + pack * step; }
};

// The base of a kernel over lines; `max_threads` per block.
template <int max_threads = 1024>
struct LineKernel : KernelTraits<max_threads, true> {
  TeamShape shape;
  std::int64_t outer, extent, inner;

  CS_BODY std::int64_t lines() const { return outer * inner; }
  CS_BODY std::int64_t offset(std::int64_t line) const {
    return inner == 1 ? line * extent : line / inner * extent * inner + line % inner;
  }
  // A line of `data`; empty past the end. W > 1 requires inner == 1.
  template <int W, class T>
  CS_BODY Span<T, W> span(T* data, std::int64_t line) const {
    if (line >= lines()) return {data, 0, 0};
    return {data + offset(line), extent / W, W == 1 ? inner : W};
  }
};

// Calls f(pack, number) for the team's packs of a line.
template <class T, int W, class F>
CS_BODY void each_pack(const Team& team, const Span<T, W>& line, F&& f) {
  const int size = team.size();
  for (std::int64_t n = team.rank(); n < line.packs; n += size)
    f(load_pack<W>(static_cast<const T*>(line.at(n))), n);
}
// Likewise f(widened elements of a pack).
template <class T, int W, class F>
CS_BODY void each_wide_pack(const Team& team, const Span<const T, W>& line, F&& f) {
  const int size = team.size();
  CS_UNROLL_4
  for (std::int64_t n = team.rank(); n < line.packs; n += size) {
    Wide<T> x[W];
    widen_pack(load_pack<W>(line.at(n)), x);
    f(x);
  }
}
// Likewise f(widened element).
template <class T, int W, class F>
CS_BODY void each_wide(const Team& team, const Span<const T, W>& line, F&& f) {
  each_wide_pack(team, line, [&](const Wide<T>(&x)[W]) {
    CS_UNROLL
    for (int j = 0; j < W; ++j) f(x[j]);
  });
}

// A line that is read several times: the packs that fit stay in registers, the others are loaded
// again.
template <class T, int W>
class Held {
 public:
  CS_BODY Held(const Team& team, const Span<const T, W>& line)
      : rank_(team.rank()), size_(team.size()), line_(line) {
    CS_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (number(k) < line.packs) held_[k] = load_pack<W>(line.at(number(k)));
    }
  }
  // Calls f(elements of a pack, its number) for the team's packs.
  template <class F>
  CS_BODY void each(F&& f) const {
    CS_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (number(k) < line_.packs) give(held_[k], number(k), f);
    }
    for (std::int64_t n = number(kHeld); n < line_.packs; n += size_)
      give(load_pack<W>(line_.at(n)), n, f);
  }
  // Likewise for two lines of the same length.
  template <class F>
  CS_BODY void each_with(const Held& other, F&& f) const {
    CS_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (number(k) < line_.packs) give(held_[k], other.held_[k], number(k), f);
    }
    for (std::int64_t n = number(kHeld); n < line_.packs; n += size_)
      give(load_pack<W>(line_.at(n)), load_pack<W>(other.line_.at(n)), n, f);
  }

 private:
  static constexpr int kHeld = 2;

  CS_BODY std::int64_t number(int k) const { return rank_ + static_cast<std::int64_t>(k) * size_; }
  template <class F>
  CS_BODY static void give(const Pack<T, W>& pack, std::int64_t number, F&& f) {
    Wide<T> x[W];
    widen_pack(pack, x);
    f(x, number);
  }
  template <class F>
  CS_BODY static void give(const Pack<T, W>& a, const Pack<T, W>& b, std::int64_t number, F&& f) {
    Wide<T> x[W], y[W];
    widen_pack(a, x);
    widen_pack(b, y);
    f(x, y, number);
  }

  int rank_, size_;
  Span<const T, W> line_;
  Pack<T, W> held_[kHeld];
};

template <class Kernel>
void set_lines(Kernel& kernel, std::int64_t outer, std::int64_t extent, std::int64_t inner) {
  kernel.outer = outer;
  kernel.extent = extent;
  kernel.inner = inner;
}

inline int power_of_two(std::int64_t at_least, int low, int high) {
  const auto wanted = static_cast<std::uint64_t>(std::clamp<std::int64_t>(at_least, low, high));
  return static_cast<int>(std::bit_ceil(wanted));
}

// The team shape for lines of `packs` packs: about two per thread.
inline TeamShape shape_for(std::int64_t packs, std::int64_t inner) {
  if (inner > 1 || packs <= 4) return TeamShape::Columns;
  return packs <= 2 * kWarp ? TeamShape::Warp : TeamShape::Block;
}

// Launches a LineKernel, after set_lines, that reads `width` elements at once, with `chunks` teams
// per line. No-op without lines.
template <class Kernel>
void launch_lines(CudaDevice& device, const char* name, Kernel kernel, int width = 1,
                  std::int64_t chunks = 1) {
  const std::int64_t lines = kernel.outer * kernel.inner * chunks;
  if (lines == 0) return;
  const std::int64_t packs = kernel.extent / width / chunks;
  kernel.shape = shape_for(packs, kernel.inner);
  int threads = 0;
  std::int64_t together = 1;  // lines per block
  std::size_t shared = 0;
  switch (kernel.shape) {
    case TeamShape::Warp:
      together = power_of_two(lines, 1, 4);
      threads = static_cast<int>(together) * kWarp;
      break;
    case TeamShape::Block:
      threads = power_of_two(packs / 2, 2 * kWarp, Kernel::kMaxThreads);
      shared = kWarp * kLargestState;
      break;
    case TeamShape::Columns:
      together = kWarp;
      threads = kWarp * power_of_two(packs / 8, 1, Kernel::kMaxThreads / kWarp);
      shared = static_cast<std::size_t>(threads) * kLargestState;
      break;
  }
  constexpr std::int64_t kMostBlocks = 1 << 20;
  const std::int64_t blocks = std::min((lines + together - 1) / together, kMostBlocks);
  launch(device, name, kernel, blocks, threads, shared);
}

}  // namespace coshard::kernels::cuda
