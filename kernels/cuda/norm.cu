// Layer norm and RMS norm: each row is read once, and kept in registers between passes as far as it
// fits.
#include <cmath>

#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

template <class T, int W>
struct LayerNormKernel : LineKernel<> {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  Wide<T>* mean;
  Wide<T>* rstd;
  Wide<T> eps;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t row) { one(team, row); });
  }
  CS_BODY void one(Team& team, std::int64_t row) const {
    using A = Wide<T>;
    const Held<T, W> held(team, this->template span<W>(x, row));
    const auto to = this->template span<W>(y, row);
    const A dim = static_cast<A>(this->extent);
    A sum = 0;
    held.each([&](const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) sum += v[j];
    });
    const A middle = team.sum(sum) / dim;
    A squares = 0;
    held.each([&](const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) squares += (v[j] - middle) * (v[j] - middle);
    });
    const A scale = 1 / std::sqrt(team.sum(squares) / dim + eps);
    held.each([&](const A(&v)[W], std::int64_t n) {
      A w[W], b[W], out[W];
      widen_or<T, W>(weight, n, 1, w);
      widen_or<T, W>(bias, n, 0, b);
      CS_UNROLL
      for (int j = 0; j < W; ++j) out[j] = (v[j] - middle) * scale * w[j] + b[j];
      store_wide(to.at(n), out);
    });
    if (team.rank() != 0 || row >= this->lines()) return;
    mean[row] = middle;
    rstd[row] = scale;
  }
};

template <class T, int W>
struct RmsNormKernel : LineKernel<> {
  const T* x;
  const T* weight;
  T* y;
  Wide<T>* rstd;
  Wide<T> eps;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t row) { one(team, row); });
  }
  CS_BODY void one(Team& team, std::int64_t row) const {
    using A = Wide<T>;
    const Held<T, W> held(team, this->template span<W>(x, row));
    const auto to = this->template span<W>(y, row);
    A squares = 0;
    held.each([&](const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) squares += v[j] * v[j];
    });
    const A scale = 1 / std::sqrt(team.sum(squares) / static_cast<A>(this->extent) + eps);
    held.each([&](const A(&v)[W], std::int64_t n) {
      A w[W], out[W];
      widen_or<T, W>(weight, n, 1, w);
      CS_UNROLL
      for (int j = 0; j < W; ++j) out[j] = v[j] * scale * w[j];
      store_wide(to.at(n), out);
    });
    if (team.rank() == 0 && row < this->lines()) rstd[row] = scale;
  }
};

}  // namespace

void run(CudaDevice& device, const LayerNorm& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = in_vectors<T>(args.dim, args.x, args.weight, args.bias, args.y);
    with_width<T>(vectors, [&](auto width) {
      LayerNormKernel<T, width()> kernel{};
      set_lines(kernel, args.rows, args.dim, 1);
      kernel.x = as<T>(args.x);
      kernel.weight = as<T>(args.weight);
      kernel.bias = as<T>(args.bias);
      kernel.y = as<T>(args.y);
      kernel.mean = as<Wide<T>>(args.mean);
      kernel.rstd = as<Wide<T>>(args.rstd);
      kernel.eps = static_cast<Wide<T>>(args.eps);
      launch_lines(device, "layer norm", kernel, width());
    });
  });
}

void run(CudaDevice& device, const RmsNorm& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = in_vectors<T>(args.dim, args.x, args.weight, args.y);
    with_width<T>(vectors, [&](auto width) {
      RmsNormKernel<T, width()> kernel{};
      set_lines(kernel, args.rows, args.dim, 1);
      kernel.x = as<T>(args.x);
      kernel.weight = as<T>(args.weight);
      kernel.y = as<T>(args.y);
      kernel.rstd = as<Wide<T>>(args.rstd);
      kernel.eps = static_cast<Wide<T>>(args.eps);
      launch_lines(device, "rms norm", kernel, width());
    });
  });
}

}  // namespace coshard::kernels::cuda
