// Reductions along lines. A few long lines are split into chunks for more teams, whose statistics
// (sums; mean and squares; maximum and exponentials) are combined in order.
#include "kernels/cuda/chunks.h"
#include "kernels/cuda/line_sums.h"

namespace coshard::kernels::cuda {
namespace {

template <class A>
struct ReduceTask {
  ReduceOp op;
  A alpha;
  bool counted;  // occurrences of an extreme are requested
  Chunks chunks;
};

// The statistics of a part of a line. a: sum, product, extreme, mean or maximum; b: occurrences of
// an extreme, sum of squares for the variance, sum of exponentials for LogSumExp.
template <class T, int W>
CS_BODY Two<Wide<T>> reduced(const ReduceTask<Wide<T>>& task, Team& team,
                             const Span<const T, W>& line) {
  using A = Wide<T>;
  const auto extreme = [&](bool largest, bool absolute) {
    if (task.counted) return line_extremes(team, line, largest, absolute);
    return Two<A>{line_extreme(team, line, largest, absolute), 0};
  };
  switch (task.op) {
    case ReduceOp::Sum:
    case ReduceOp::Mean: return {line_sum(team, line, [](A v) { return v; }), 0};
    case ReduceOp::NanSum:
      return {line_sum(team, line, [](A v) { return is_nan(v) ? A(0) : v; }), 0};
    case ReduceOp::AbsPower:
      return {line_sum(team, line, [&](A v) { return abs_power(v, task.alpha); }), 0};
    case ReduceOp::Max:
    case ReduceOp::AbsMax: return extreme(true, task.op == ReduceOp::AbsMax);
    case ReduceOp::Min:
    case ReduceOp::AbsMin: return extreme(false, task.op == ReduceOp::AbsMin);
    case ReduceOp::Variance:
    case ReduceOp::Deviation: {
      const A mean = line_mean(team, line);
      return {mean, line_squares(team, line, mean)};
    }
    case ReduceOp::LogSumExp: return line_exponents(team, line);
    case ReduceOp::Product: break;
  }
  double product = 1;  // in double: partial products may leave the dtype's range
  each_wide(team, line, [&](A v) { product *= static_cast<double>(v); });
  product = team.combine(product, [](double a, double b) { return a * b; });
  return {static_cast<A>(product), 0};
}

// Combines the statistics of `m` elements with those of the next `n`.
template <class A>
CS_BODY Two<A> joined(ReduceOp op, const Two<A>& x, A m, const Two<A>& y, A n) {
  switch (op) {
    case ReduceOp::Product: return {x.a * y.a, 0};
    case ReduceOp::Max:
    case ReduceOp::AbsMax: return extremes_of(x, y, true);
    case ReduceOp::Min:
    case ReduceOp::AbsMin: return extremes_of(x, y, false);
    case ReduceOp::Variance:
    case ReduceOp::Deviation: {
      const A apart = y.a - x.a;
      if (apart - apart != 0) return {x.a + y.a, x.b + y.b};  // an infinite mean stays infinite
      return {x.a + apart * (n / (m + n)), x.b + y.b + apart * apart * (m * n / (m + n))};
    }
    case ReduceOp::LogSumExp: {
      const A high = extreme_of(x.a, y.a, true);
      const auto share = [&](const Two<A>& part) {
        return part.a == -infinity<A>() ? A(0) : part.b * std::exp(part.a - high);
      };
      return {high, share(x) + share(y)};
    }
    default: return {x.a + y.a, 0};
  }
}

template <class A>
CS_BODY A finished(ReduceOp op, A alpha, std::int64_t extent, const Two<A>& x) {
  const A count = static_cast<A>(extent);
  const A divisor = count - alpha > 0 ? count - alpha : A(0);
  switch (op) {
    case ReduceOp::Mean: return x.a / count;
    case ReduceOp::Variance: return x.b / divisor;
    case ReduceOp::Deviation: return std::sqrt(x.b / divisor);
    case ReduceOp::LogSumExp: return log_of(x);
    default: return x.a;
  }
}

// One team per chunk; lines that are not split are finished here, unless the statistics are
// requested.
template <class T, int W>
struct ReduceDimKernel : LineKernel<> {
  ReduceTask<Wide<T>> task;
  const T* x;
  T* y;
  Two<Wide<T>>* parts;  // [chunks][lines]; null: finished in y

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    const std::int64_t all = this->lines() * task.chunks.count;
    team.each_line(all, [&](std::int64_t at) {
      const auto part = chunk_of<W>(*this, task.chunks, x, at);
      const Two<Wide<T>> found = reduced(task, team, part);
      if (team.rank() != 0 || at >= all) return;
      if (parts != nullptr) {
        parts[at] = found;
      } else {
        y[at] = static_cast<T>(finished(task.op, task.alpha, this->extent, found));
      }
    });
  }
};

template <class T>
struct JoinKernel : PerElement {
  ReduceTask<Wide<T>> task;
  std::int64_t lines, extent;
  const Two<Wide<T>>* parts;
  T* y;
  Two<Wide<T>>* found;  // null: finished in y

  CS_BODY void operator()(Block& block) const {
    using A = Wide<T>;
    for (std::int64_t i = block.grid_thread(); i < lines; i += block.grid_threads()) {
      Two<A> all = parts[i];
      for (std::int64_t c = 1; c < task.chunks.count; ++c) {
        const std::int64_t before = c * task.chunks.length, left = extent - before;
        const std::int64_t n = left < task.chunks.length ? left : task.chunks.length;
        all = joined(task.op, all, static_cast<A>(before), parts[c * lines + i], static_cast<A>(n));
      }
      if (found != nullptr) {
        found[i] = all;
      } else {
        y[i] = static_cast<T>(finished(task.op, task.alpha, extent, all));
      }
    }
  }
};

// Writes the results to args.y or, if `found` is not null, the unfinished statistics there.
template <class T, int W>
void reduce_lines(CudaDevice& device, const ReduceDim& args, Two<Wide<T>>* found) {
  using A = Wide<T>;
  ReduceDimKernel<T, W> kernel{};
  set_lines(kernel, args.outer, args.extent, args.inner);
  kernel.task = {args.op, static_cast<A>(args.alpha), found != nullptr,
                 chunks_for(device, args.outer, args.extent, args.inner, W)};
  kernel.x = as<T>(args.x);
  kernel.y = as<T>(args.y);
  kernel.parts = found;
  const std::int64_t chunks = kernel.task.chunks.count;
  if (chunks == 1) return launch_lines(device, "reduce", kernel, W);
  const std::int64_t lines = args.outer * args.inner;
  const auto scratch =
      device.make_buffer(static_cast<std::size_t>(chunks * lines) * sizeof(Two<A>));
  kernel.parts = static_cast<Two<A>*>(scratch->data());
  launch_lines(device, "reduce", kernel, W, chunks);
  JoinKernel<T> join{};
  join.task = kernel.task;
  join.lines = lines;
  join.extent = args.extent;
  join.parts = kernel.parts;
  join.y = kernel.y;
  join.found = found;
  launch_elements(device, "join", join, lines);
}

template <class T>
void reduce_floats(CudaDevice& device, const ReduceDim& args, void* found) {
  with_width<T>(args.inner == 1 && in_vectors<T>(args.extent, args.x), [&](auto width) {
    reduce_lines<T, width()>(device, args, static_cast<Two<Wide<T>>*>(found));
  });
}

// Integers and booleans; sums and products wrap around.
template <class T, class Out>
struct ReduceIntegersKernel : LineKernel<> {
  ReduceOp op;
  Chunks chunks;
  const T* x;
  Out* y;  // [chunks][lines]

  CS_BODY std::int64_t step(std::int64_t a, std::int64_t b) const {
    const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
    if (op == ReduceOp::Sum) return static_cast<std::int64_t>(u + v);
    if (op == ReduceOp::Product) return static_cast<std::int64_t>(u * v);
    return op == ReduceOp::Max ? (a < b ? b : a) : (b < a ? b : a);
  }
  CS_BODY void operator()(Block& block) const {
    using Limits = std::numeric_limits<T>;
    Team team(block, this->shape);
    const std::int64_t all = this->lines() * chunks.count;
    team.each_line(all, [&](std::int64_t at) {
      std::int64_t result = op == ReduceOp::Product ? 1 : 0;
      if (op == ReduceOp::Max) result = static_cast<std::int64_t>(Limits::lowest());
      if (op == ReduceOp::Min) result = static_cast<std::int64_t>(Limits::max());
      each_wide(team, chunk_of<1>(*this, chunks, x, at),
                [&](T v) { result = step(result, static_cast<std::int64_t>(v)); });
      result = team.combine(result, [&](std::int64_t a, std::int64_t b) { return step(a, b); });
      if (team.rank() == 0 && at < all) y[at] = static_cast<Out>(result);
    });
  }
};

template <class T, class Out>
void reduce_integers(CudaDevice& device, const ReduceDim& args, const Chunks& chunks) {
  ReduceIntegersKernel<T, Out> kernel{};
  set_lines(kernel, args.outer, args.extent, args.inner);
  kernel.op = args.op;
  kernel.chunks = chunks;
  kernel.x = as<T>(args.x);
  kernel.y = as<Out>(args.y);
  const char* name = chunks.count > 1 ? "reduce integers in chunks" : "reduce integers";
  launch_lines(device, name, kernel, 1, chunks.count);
}

template <class T>
void reduce_integers(CudaDevice& device, const ReduceDim& args) {
  const bool extreme = args.op == ReduceOp::Max || args.op == ReduceOp::Min;
  const bool sums = args.op == ReduceOp::Sum || args.op == ReduceOp::Product;
  CS_REQUIRE(extreme || (sums && !std::is_same_v<T, bool>), "reduction ", static_cast<int>(args.op),
             " does not support ", dtype_of<T>);
  const Chunks chunks = chunks_for(device, args.outer, args.extent, args.inner, 1);
  if (chunks.count == 1) return reduce_integers<T, T>(device, args, chunks);
  const std::int64_t lines = args.outer * args.inner;
  const auto bytes = static_cast<std::size_t>(chunks.count * lines) * sizeof(std::int64_t);
  const auto parts = device.make_buffer(bytes);
  ReduceDim step = args;
  step.y = parts->data();
  reduce_integers<T, std::int64_t>(device, step, chunks);
  step = {args.op, DType::I64, 1, chunks.count, lines, parts->data(), args.y, 0};
  reduce_integers<std::int64_t, T>(device, step, {1, chunks.count});
}

}  // namespace

void run(CudaDevice& device, const ReduceDim& args) {
  with_any(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) {
      reduce_integers<T>(device, args);
    } else {
      reduce_floats<T>(device, args, nullptr);
    }
  });
}

void find_lines(CudaDevice& device, const ReduceDim& args, void* found) {
  with_floating(args.dtype, [&](auto tag) { reduce_floats<decltype(tag)>(device, args, found); });
}

}  // namespace coshard::kernels::cuda
