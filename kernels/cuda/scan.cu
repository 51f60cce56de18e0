// Running sums, products, extremes and log-sum-exps along lines, in double or 64-bit integers.
// Adjacent lines get one thread each; a contiguous line gets a block, which processes it tile by
// tile.
#include <cmath>

#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kScanItems = 4;  // per thread in each tile
constexpr int kScanThreads = 512;

template <class T>
using ScanSum = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

template <class T, class A>
CS_BODY T scan_result(A value) {
  if constexpr (is_short_float<T>) {
    return static_cast<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// log(e^a + e^b)
CS_BODY double scan_log_add_exp(double a, double b) {
  const double high = a != a || a > b ? a : b;
  const double low = a != a || a > b ? b : a;
  if (std::isinf(high) && (high == low || high > 0)) return high;
  return high + std::log1p(std::exp(low - high));
}

// Combines `before` (of earlier elements) and `value`. where: the index of an extreme; < 0: no
// elements.
template <class A>
CS_BODY Placed<A> scanned(ScanOp op, const Placed<A>& before, const Placed<A>& value) {
  if (before.where < 0 || value.where < 0) return before.where < 0 ? value : before;
  const A a = before.value, b = value.value;
  if (op == ScanOp::Max || op == ScanOp::Min) {
    if (b != b) return value;
    if (a != a) return before;
    return (op == ScanOp::Max ? b >= a : b <= a) ? value : before;
  }
  if constexpr (std::is_same_v<A, double>) {
    if (op == ScanOp::LogSumExp) return {scan_log_add_exp(a, b), value.where};
    return {op == ScanOp::Sum ? a + b : a * b, value.where};
  } else {
    const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
    return {static_cast<A>(op == ScanOp::Sum ? u + v : u * v), value.where};
  }
}

template <class T>
struct ScanTask {
  ScanOp op;
  bool reverse;
  std::int64_t lines, extent, inner;
  const T* x;
  T* y;
  std::int64_t* indices;  // null: not requested

  using State = Placed<ScanSum<T>>;
  CS_BODY std::int64_t offset(std::int64_t line) const {
    return line / inner * extent * inner + line % inner;
  }
  // Element n in the order of the scan.
  CS_BODY State get(std::int64_t first, std::int64_t n) const {
    const std::int64_t e = reverse ? extent - 1 - n : n;
    return {static_cast<ScanSum<T>>(widen(x[first + e * inner])), e};
  }
  CS_BODY void put(std::int64_t first, std::int64_t n, const State& state) const {
    const std::int64_t at = first + (reverse ? extent - 1 - n : n) * inner;
    y[at] = scan_result<T>(state.value);
    if (indices != nullptr) indices[at] = state.where;
  }
};

template <class T>
struct ScanSideBySideKernel : PerElement {
  ScanTask<T> task;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < task.lines; i += block.grid_threads()) {
      const std::int64_t first = task.offset(i);
      typename ScanTask<T>::State state{};
      state.where = -1;
      for (std::int64_t n = 0; n < task.extent; ++n) {
        state = scanned(task.op, state, task.get(first, n));
        task.put(first, n, state);
      }
    }
  }
};

template <class T>
struct ScanLineKernel : KernelTraits<kScanThreads, true> {
  ScanTask<T> task;
  using State = typename ScanTask<T>::State;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t line = block.index(); line < task.lines; line += block.count()) {
      State carry{};
      carry.where = -1;
      const std::int64_t tile = static_cast<std::int64_t>(block.threads()) * kScanItems;
      for (std::int64_t n = 0; n < task.extent; n += tile)
        carry = one_tile(block, line * task.extent, n + block.thread() * kScanItems, carry);
    }
  }
  // Returns the state after the tile.
  CS_BODY State one_tile(Block& block, std::int64_t first, std::int64_t own, State carry) const {
    State items[kScanItems];
    State sum{};
    sum.where = -1;
    CS_UNROLL
    for (int k = 0; k < kScanItems; ++k) {
      if (own + k < task.extent) sum = scanned(task.op, sum, task.get(first, own + k));
      items[k] = sum;
    }
    State before = carry;
    const State after = meet(block, sum, before);
    CS_UNROLL
    for (int k = 0; k < kScanItems; ++k) {
      if (own + k < task.extent) task.put(first, own + k, scanned(task.op, before, items[k]));
    }
    return after;
  }
  // Adds the values of earlier threads to `before`; returns it with those of all threads added.
  CS_BODY State meet(Block& block, State sum, State& before) const {
    auto* of_warps = block.template shared<State>();
    const auto from_below = [&](const State& state, int delta) {
      return moved(state, [&](auto v) { return block.shuffle_up(v, delta); });
    };
    for (int delta = 1; delta < kWarp; delta *= 2) {
      const State earlier = from_below(sum, delta);
      if (block.lane() >= delta) sum = scanned(task.op, earlier, sum);
    }
    const State in_warp = from_below(sum, 1);
    if (block.lane() == kWarp - 1) of_warps[block.warp()] = sum;
    block.barrier();
    State all = before;
    for (int warp = 0; warp < block.threads() / kWarp; ++warp) {
      all = scanned(task.op, all, of_warps[warp]);
      if (warp + 1 == block.warp()) before = all;
    }
    if (block.lane() > 0) before = scanned(task.op, before, in_warp);
    block.barrier();
    return all;
  }
};

template <class T>
void scan_lines(CudaDevice& device, const Scan& args) {
  const bool extreme = args.op == ScanOp::Max || args.op == ScanOp::Min;
  const ScanTask<T> task{args.op,
                         args.reverse,
                         args.outer * args.inner,
                         args.extent,
                         args.inner,
                         as<T>(args.x),
                         as<T>(args.y),
                         extreme ? as<std::int64_t>(args.indices) : nullptr};
  if (task.lines * task.extent == 0) return;
  if (args.inner > 1) {
    ScanSideBySideKernel<T> kernel{};
    kernel.task = task;
    return launch_elements(device, "scan side by side", kernel, task.lines);
  }
  ScanLineKernel<T> kernel{};
  kernel.task = task;
  constexpr std::int64_t kMostBlocks = 1 << 20;
  const int threads = power_of_two(args.extent / kScanItems, kWarp, kScanThreads);
  launch(device, "scan", kernel, std::min(task.lines, kMostBlocks), threads,
         kScanThreads / kWarp * sizeof(Placed<ScanSum<T>>));
}

}  // namespace

void run(CudaDevice& device, const Scan& args) {
  CS_REQUIRE(args.op != ScanOp::LogSumExp || is_floating(args.dtype),
             "logcumsumexp does not support integers");
  with_any(args.dtype, [&](auto tag) { scan_lines<decltype(tag)>(device, args); });
}

}  // namespace coshard::kernels::cuda
