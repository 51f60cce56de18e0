// Many elements to one along lines. Long lines of which there are few are cut into chunks for more
// teams; what is found in them (sums; mean and squares; maximum and exponents) is joined in order.
#include "kernels/cuda/line_sums.h"

namespace coshard::kernels::cuda {
namespace {

// What a part of a line comes to. a: sum, product, extreme, mean or largest; b: of the variance the
// squares, of LogSumExp the exponents.
template <class T, int W>
CS_BODY Two<Wide<T>> reduced(ReduceOp op, Wide<T> alpha, Team& team, const Span<const T, W>& line) {
  using A = Wide<T>;
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Mean: return {line_sum(team, line, [](A v) { return v; }), 0};
    case ReduceOp::NanSum:
      return {line_sum(team, line, [](A v) { return is_nan(v) ? A(0) : v; }), 0};
    case ReduceOp::AbsPower:
      return {line_sum(team, line, [&](A v) { return abs_power(v, alpha); }), 0};
    case ReduceOp::Max:
    case ReduceOp::AbsMax: return {line_extreme(team, line, true, op == ReduceOp::AbsMax), 0};
    case ReduceOp::Min:
    case ReduceOp::AbsMin: return {line_extreme(team, line, false, op == ReduceOp::AbsMin), 0};
    case ReduceOp::Variance:
    case ReduceOp::Deviation: {
      const A mean = line_mean(team, line);
      return {mean, line_squares(team, line, mean)};
    }
    case ReduceOp::LogSumExp: return line_exponents(team, line);
    case ReduceOp::Product: break;
  }
  double product = 1;  // what its parts come to is not in the range of the whole
  each_wide(team, line, [&](A v) { product *= static_cast<double>(v); });
  product = team.combine(product, [](double a, double b) { return a * b; });
  return {static_cast<A>(product), 0};
}

// Of `m` elements joined with those of the `n` that follow.
template <class A>
CS_BODY Two<A> joined(ReduceOp op, const Two<A>& x, A m, const Two<A>& y, A n) {
  switch (op) {
    case ReduceOp::Product: return {x.a * y.a, 0};
    case ReduceOp::Max:
    case ReduceOp::AbsMax: return {extreme_of(x.a, y.a, true), 0};
    case ReduceOp::Min:
    case ReduceOp::AbsMin: return {extreme_of(x.a, y.a, false), 0};
    case ReduceOp::Variance:
    case ReduceOp::Deviation: {
      const A apart = y.a - x.a;
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

template <class A>
struct ReduceTask {
  ReduceOp op;
  A alpha;
  std::int64_t chunks, length;  // of a line, and elements of all chunks but the last
};

// A team for each chunk; lines that are not cut are finished here.
template <class T, int W>
struct ReduceDimKernel : LineKernel<> {
  ReduceTask<Wide<T>> task;
  const T* x;
  T* y;
  Two<Wide<T>>* parts;  // [chunks][lines]; null: one chunk

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    const std::int64_t all = this->lines();
    team.each_line(all * task.chunks, [&](std::int64_t at) {
      Span<const T, W> part{x, 0, W};
      const bool is_part = at < all * task.chunks;
      if (is_part) part = this->template span<W>(x, at % all);
      if (is_part && task.chunks > 1) {
        const std::int64_t packs = task.length / W, first = at / all * packs;
        const std::int64_t left = part.packs - first;
        part = {part.at(first), left < packs ? left : packs, part.step};
      }
      const Two<Wide<T>> found = reduced(task.op, task.alpha, team, part);
      if (team.rank() != 0 || !is_part) return;
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

  CS_BODY void operator()(Block& block) const {
    using A = Wide<T>;
    for (std::int64_t i = block.grid_thread(); i < lines; i += block.grid_threads()) {
      Two<A> all = parts[i];
      for (std::int64_t c = 1; c < task.chunks; ++c) {
        const std::int64_t before = c * task.length;
        const std::int64_t n = extent - before < task.length ? extent - before : task.length;
        all = joined(task.op, all, static_cast<A>(before), parts[c * lines + i], static_cast<A>(n));
      }
      y[i] = static_cast<T>(finished(task.op, task.alpha, extent, all));
    }
  }
};

// Enough chunks to keep the device busy, each long enough to be worth it.
std::int64_t chunks_for(const CudaDevice& device, const ReduceDim& args) {
  const std::int64_t blocks = args.inner == 1 ? args.outer : (args.outer * args.inner + 31) / 32;
  const std::int64_t wanted = 4 * device.multiprocessors() / std::max<std::int64_t>(blocks, 1);
  const std::int64_t shortest = args.inner == 1 ? 8192 : 512;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(args.extent / shortest, 1));
}

template <class T, int W>
void reduce_lines(CudaDevice& device, const ReduceDim& args) {
  using A = Wide<T>;
  ReduceTask<A> task{args.op, static_cast<A>(args.alpha), chunks_for(device, args), args.extent};
  if (task.chunks > 1) {
    const std::int64_t packs = args.extent / W;
    task.length = (packs + task.chunks - 1) / task.chunks * W;
    task.chunks = (args.extent + task.length - 1) / task.length;
  }
  ReduceDimKernel<T, W> kernel{};
  set_lines(kernel, args.outer, args.extent, args.inner);
  kernel.task = task;
  kernel.x = as<T>(args.x);
  kernel.y = as<T>(args.y);
  std::shared_ptr<Buffer> scratch;
  if (task.chunks > 1) {
    const std::int64_t parts = task.chunks * args.outer * args.inner;
    scratch = device.make_buffer(static_cast<std::size_t>(parts) * sizeof(Two<A>));
    kernel.parts = static_cast<Two<A>*>(scratch->data());
  }
  launch_lines(device, "reduce", kernel, W, task.chunks);
  if (task.chunks == 1) return;
  JoinKernel<T> join{};
  join.task = task;
  join.lines = args.outer * args.inner;
  join.extent = args.extent;
  join.parts = kernel.parts;
  join.y = kernel.y;
  launch_elements(device, "join", join, join.lines);
}

// Integers and booleans; sums and products wrap around.
template <class T>
struct ReduceIntegersKernel : LineKernel<> {
  ReduceOp op;
  const T* x;
  T* y;

  CS_BODY std::int64_t step(std::int64_t a, std::int64_t b) const {
    const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
    if (op == ReduceOp::Sum) return static_cast<std::int64_t>(u + v);
    if (op == ReduceOp::Product) return static_cast<std::int64_t>(u * v);
    return op == ReduceOp::Max ? (a < b ? b : a) : (b < a ? b : a);
  }
  CS_BODY void operator()(Block& block) const {
    using Limits = std::numeric_limits<T>;
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) {
      std::int64_t result = op == ReduceOp::Product ? 1 : 0;
      if (op == ReduceOp::Max) result = static_cast<std::int64_t>(Limits::lowest());
      if (op == ReduceOp::Min) result = static_cast<std::int64_t>(Limits::max());
      each_wide(team, this->template span<1>(x, line),
                [&](T v) { result = step(result, static_cast<std::int64_t>(v)); });
      result = team.combine(result, [&](std::int64_t a, std::int64_t b) { return step(a, b); });
      if (team.rank() == 0 && line < this->lines()) y[line] = static_cast<T>(result);
    });
  }
};

template <class T>
void reduce_integers(CudaDevice& device, const ReduceDim& args) {
  const bool extreme = args.op == ReduceOp::Max || args.op == ReduceOp::Min;
  const bool sums = args.op == ReduceOp::Sum || args.op == ReduceOp::Product;
  CS_REQUIRE(extreme || (sums && !std::is_same_v<T, bool>), "reduction ", static_cast<int>(args.op),
             " of ", dtype_of<T>, " elements");
  ReduceIntegersKernel<T> kernel{};
  set_lines(kernel, args.outer, args.extent, args.inner);
  kernel.op = args.op;
  kernel.x = as<T>(args.x);
  kernel.y = as<T>(args.y);
  launch_lines(device, "reduce integers", kernel);
}

}  // namespace

void run(CudaDevice& device, const ReduceDim& args) {
  with_any(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) {
      reduce_integers<T>(device, args);
    } else {
      with_width<T>(args.inner == 1 && in_vectors<T>(args.extent, args.x),
                    [&](auto width) { reduce_lines<T, width()>(device, args); });
    }
  });
}

}  // namespace coshard::kernels::cuda
