// The gradients of running products and of running log-sum-exps, in double; one thread per line.
#include <cmath>
#include <limits>

#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {
namespace {

template <class T>
struct ScanGradKernel : PerElement {
  bool product;
  std::int64_t lines, extent, inner;
  const T* dy;
  const T* x;
  const T* y;
  T* dx;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < lines; i += block.grid_threads()) {
      const std::int64_t first = i / inner * extent * inner + i % inner;
      product ? of_product(first) : of_log_sum_exp(first);
    }
  }
  CS_BODY double get(const T* from, std::int64_t at) const {
    return static_cast<double>(widen(from[at]));
  }
  CS_BODY void give(std::int64_t at, double value) const {
    dx[at] = static_cast<T>(static_cast<Wide<T>>(value));
  }

  // dx[k] = sum over j >= k of dy[j] * the product of x[0..j] without x[k]. Past the first zero
  // every product that contains it is 0; only those for k at that zero omit it.
  CS_BODY void of_product(std::int64_t first) const {
    std::int64_t zero = 0;
    double before = 1;
    for (; zero < extent; ++zero) {
      const double value = get(x, first + zero * inner);
      if (value == 0) break;
      before *= value;
    }
    double sum = 0, product_of = before;
    for (std::int64_t e = zero; e < extent; ++e) {
      const std::int64_t at = first + e * inner;
      if (e > zero) product_of *= get(x, at);
      sum += get(dy, at) * product_of;
      if (e > zero) give(at, 0);
    }
    if (zero < extent) give(first + zero * inner, sum);
    sum = 0;
    product_of = before;  // of x[0..e]
    for (std::int64_t e = zero - 1; e >= 0; --e) {
      const std::int64_t at = first + e * inner;
      sum += get(dy, at) * product_of;
      give(at, sum / get(x, at));
      product_of /= get(x, at);
    }
  }
  // y does not decrease from left to right, so no exponential below exceeds 1.
  CS_BODY void of_log_sum_exp(std::int64_t first) const {
    double sum = 0, later = 0;
    for (std::int64_t e = extent - 1; e >= 0; --e) {
      const std::int64_t at = first + e * inner;
      const double here = get(y, at);
      const bool nothing = here == -std::numeric_limits<double>::infinity();
      if (e + 1 < extent && !nothing) sum *= std::exp(here - later);
      sum = nothing ? 0 : sum + get(dy, at);
      later = here;
      give(at, nothing ? 0 : sum * std::exp(get(x, at) - here));
    }
  }
};

}  // namespace

void run(CudaDevice& device, const ScanGrad& args) {
  CS_REQUIRE(args.op == ScanOp::Product || args.op == ScanOp::LogSumExp,
             "scan_grad does not support scan ", static_cast<int>(args.op));
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    ScanGradKernel<T> kernel{};
    kernel.product = args.op == ScanOp::Product;
    kernel.lines = args.outer * args.inner;
    kernel.extent = args.extent;
    kernel.inner = args.inner;
    kernel.dy = as<T>(args.dy);
    kernel.x = as<T>(args.x);
    kernel.y = as<T>(args.y);
    kernel.dx = as<T>(args.dx);
    launch_elements(device, "scan gradient", kernel, kernel.lines);
  });
}

}  // namespace coshard::kernels::cuda
