// Softmax and log-softmax along lines, and their gradients.
#include <limits>

#include "kernels/cuda/exponent.h"
#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

template <class T, int W>
struct SoftmaxKernel : LineKernel<> {
  const T* x;
  T* y;
  bool log;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) { one(team, line); });
  }
  CS_BODY void one(Team& team, std::int64_t line) const {
    using A = Wide<T>;
    const Held<T, W> held(team, this->template span<W>(x, line));
    const auto to = this->template span<W>(y, line);
    // Ignores NaN, which the sum propagates.
    A high = -std::numeric_limits<A>::infinity();
    held.each([&](const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) high = high < v[j] ? v[j] : high;
    });
    high = team.combine(high, [](A a, A b) { return a < b ? b : a; });
    A sum = 0;
    held.each([&](const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) sum += exponent<T>(v[j] - high);
    });
    sum = team.sum(sum);
    const A scale = log ? std::log(sum) : 1 / sum;
    held.each([&](const A(&v)[W], std::int64_t n) {
      A out[W];
      CS_UNROLL
      for (int j = 0; j < W; ++j)
        out[j] = log ? v[j] - high - scale : exponent<T>(v[j] - high) * scale;
      store_wide(to.at(n), out);
    });
  }
};

template <class T, int W>
struct SoftmaxGradKernel : LineKernel<> {
  const T* dy;
  const T* y;
  T* dx;
  bool log;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) { one(team, line); });
  }
  CS_BODY void one(Team& team, std::int64_t line) const {
    using A = Wide<T>;
    const Held<T, W> slopes(team, this->template span<W>(dy, line));
    const Held<T, W> held(team, this->template span<W>(y, line));
    const auto to = this->template span<W>(dx, line);
    A sum = 0;
    slopes.each_with(held, [&](const A(&d)[W], const A(&v)[W], std::int64_t) {
      CS_UNROLL
      for (int j = 0; j < W; ++j) sum += log ? d[j] : d[j] * v[j];
    });
    sum = team.sum(sum);
    slopes.each_with(held, [&](const A(&d)[W], const A(&v)[W], std::int64_t n) {
      A out[W];
      CS_UNROLL
      for (int j = 0; j < W; ++j)
        out[j] = log ? d[j] - exponent<T>(v[j]) * sum : v[j] * (d[j] - sum);
      store_wide(to.at(n), out);
    });
  }
};

}  // namespace

void run(CudaDevice& device, const Softmax& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    with_width<T>(args.inner == 1 && in_vectors<T>(args.extent, args.x, args.y), [&](auto width) {
      SoftmaxKernel<T, width()> kernel{};
      set_lines(kernel, args.outer, args.extent, args.inner);
      kernel.x = as<T>(args.x);
      kernel.y = as<T>(args.y);
      kernel.log = args.log;
      launch_lines(device, "softmax", kernel, width());
    });
  });
}

void run(CudaDevice& device, const SoftmaxGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = args.inner == 1 && in_vectors<T>(args.extent, args.dy, args.y, args.dx);
    with_width<T>(vectors, [&](auto width) {
      SoftmaxGradKernel<T, width()> kernel{};
      set_lines(kernel, args.outer, args.extent, args.inner);
      kernel.dy = as<T>(args.dy);
      kernel.y = as<T>(args.y);
      kernel.dx = as<T>(args.dx);
      kernel.log = args.log;
      launch_lines(device, "softmax gradient", kernel, width());
    });
  });
}

}  // namespace coshard::kernels::cuda
