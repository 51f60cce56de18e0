// The gradients of layer norm and RMS norm. A grid sized to the device iterates over the rows; each
// block accumulates its share of dweight and dbias while dy and x are loaded, each thread for the
// columns that it reads, and a second kernel adds the blocks' sums in order.
#include <cmath>

#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

constexpr std::int64_t kNormGradThreads = 1024;                  // per multiprocessor
constexpr std::size_t kNormGradMeeting = kWarp * kLargestState;  // shared bytes for the team
constexpr std::size_t kNormGradShared = 48 * 1024;

// `layer`: with mean and bias.
template <class T, int W, bool layer>
struct NormGradKernel : PerBlock {
  using A = Wide<T>;
  std::int64_t rows, dim;
  const T* dy;
  const T* x;
  const T* weight;
  const A* mean;
  const A* rstd;
  T* dx;
  A* sums;         // [1 or 2][blocks][dim]: of dweight, dbias; null: not requested
  bool in_shared;  // summed in shared memory, then copied

  // Where the block accumulates column j of pack n. In shared memory, adjacent threads access
  // adjacent words.
  CS_BODY A* column(Block& block, int which, std::int64_t n, int j) const {
    if (in_shared)
      return block.template shared<A>(kNormGradMeeting) + which * dim + j * (dim / W) + n;
    return result(block, which, n, j);
  }
  CS_BODY A* result(Block& block, int which, std::int64_t n, int j) const {
    return sums + (static_cast<std::int64_t>(which) * block.count() + block.index()) * dim + n * W +
           j;
  }
  template <class F>
  CS_BODY void each_column(Block& block, F&& f) const {
    if (sums == nullptr) return;
    for (std::int64_t n = block.thread(); n < dim / W; n += block.threads()) {
      for (int j = 0; j < W; ++j) {
        for (int which = 0; which <= (layer ? 1 : 0); ++which) f(which, n, j);
      }
    }
  }

  CS_BODY void operator()(Block& block) const {
    each_column(block, [&](int which, std::int64_t n, int j) { *column(block, which, n, j) = 0; });
    Team team(block, TeamShape::Block);
    team.each_line(rows, [&](std::int64_t row) { one(block, team, row); });
    if (!in_shared) return;
    each_column(block, [&](int which, std::int64_t n, int j) {
      *result(block, which, n, j) = *column(block, which, n, j);
    });
  }

  CS_BODY void one(Block& block, Team& team, std::int64_t row) const {
    const Held<T, W> slopes(team, Span<const T, W>{dy + row * dim, dim / W, W});
    const Held<T, W> held(team, Span<const T, W>{x + row * dim, dim / W, W});
    const A middle = layer ? mean[row] : A(0);
    const A scale = rstd[row];
    A sum = 0, dot = 0;
    slopes.each_with(held, [&](const A(&d)[W], const A(&v)[W], std::int64_t n) {
      A w[W];
      widen_or<T, W>(weight, n, 1, w);
      CS_UNROLL
      for (int j = 0; j < W; ++j) {
        const A normal = (v[j] - middle) * scale;
        sum += d[j] * w[j];
        dot += d[j] * w[j] * normal;
        if (sums == nullptr) continue;
        *column(block, 0, n, j) += d[j] * normal;
        if constexpr (layer) *column(block, 1, n, j) += d[j];
      }
    });
    const Two<A> both = team.sums(sum, dot);
    sum = layer ? both.a / static_cast<A>(dim) : A(0);
    dot = both.b / static_cast<A>(dim);
    slopes.each_with(held, [&](const A(&d)[W], const A(&v)[W], std::int64_t n) {
      A w[W], out[W];
      widen_or<T, W>(weight, n, 1, w);
      CS_UNROLL
      for (int j = 0; j < W; ++j)
        out[j] = scale * (d[j] * w[j] - sum - (v[j] - middle) * scale * dot);
      store_wide(dx + row * dim + n * W, out);
    });
  }
};

// y[column] = the sum of x [groups, columns] over the groups.
template <class T>
struct ColumnSumKernel : LineKernel<> {
  const Wide<T>* x;
  T* y;
  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) {
      Wide<T> sum = 0;
      each_wide(team, this->template span<1>(x, line), [&](Wide<T> v) { sum += v; });
      sum = team.sum(sum);
      if (team.rank() == 0 && line < this->lines()) y[line] = static_cast<T>(sum);
    });
  }
};

template <class T>
void norm_column_sums(CudaDevice& device, const Wide<T>* sums, std::int64_t groups,
                      std::int64_t dim, void* to) {
  if (to == nullptr) return;
  ColumnSumKernel<T> kernel{};
  set_lines(kernel, 1, groups, dim);
  kernel.x = sums;
  kernel.y = as<T>(to);
  launch_lines(device, "column sums", kernel);
}

template <class T, int W, bool layer>
void norm_grad(CudaDevice& device, NormGradKernel<T, W, layer> kernel, void* dweight, void* dbias) {
  using A = Wide<T>;
  const int threads = power_of_two(kernel.dim / W / 2, kWarp, PerBlock::kMaxThreads);
  const std::int64_t fitting = device.multiprocessors() * kNormGradThreads / threads;
  const std::int64_t blocks = std::min(kernel.rows, fitting);
  const bool wanted = dweight != nullptr || dbias != nullptr;
  const std::int64_t planes = layer ? 2 : 1;
  const std::size_t columns = static_cast<std::size_t>(planes * kernel.dim) * sizeof(A);
  std::size_t shared = kNormGradMeeting;
  std::shared_ptr<Buffer> scratch;
  if (wanted) {
    scratch = device.make_buffer(static_cast<std::size_t>(blocks) * columns);
    kernel.sums = as<A>(scratch->data());
    kernel.in_shared = shared + columns <= kNormGradShared;
    if (kernel.in_shared) shared += columns;
  }
  const char* name = layer ? "layer norm gradient" : "rms norm gradient";
  if (blocks > 0 && kernel.dim > 0) launch(device, name, kernel, blocks, threads, shared);
  if (!wanted) return;
  norm_column_sums<T>(device, kernel.sums, blocks, kernel.dim, dweight);
  norm_column_sums<T>(device, kernel.sums + blocks * kernel.dim, blocks, kernel.dim, dbias);
}

// Common part of the two; mean and dbias are layer norm's.
template <bool layer, class Args>
void any_norm_grad(CudaDevice& device, const Args& args, const void* mean, void* dbias) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = in_vectors<T>(args.dim, args.dy, args.x, args.weight, args.dx);
    with_width<T>(vectors, [&](auto width) {
      NormGradKernel<T, width(), layer> kernel{};
      kernel.rows = args.rows;
      kernel.dim = args.dim;
      kernel.dy = as<T>(args.dy);
      kernel.x = as<T>(args.x);
      kernel.weight = as<T>(args.weight);
      kernel.mean = as<Wide<T>>(mean);
      kernel.rstd = as<Wide<T>>(args.rstd);
      kernel.dx = as<T>(args.dx);
      norm_grad(device, kernel, args.dweight, dbias);
    });
  });
}

}  // namespace

void run(CudaDevice& device, const LayerNormGrad& args) {
  any_norm_grad<true>(device, args, args.mean, args.dbias);
}

void run(CudaDevice& device, const RmsNormGrad& args) {
  any_norm_grad<false>(device, args, nullptr, nullptr);
}

}  // namespace coshard::kernels::cuda
