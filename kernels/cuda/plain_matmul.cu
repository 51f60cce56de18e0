// Matmul as plain loops over any strides: one thread per result.
#include "kernels/cuda/plain_matmul.h"
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {
namespace {

// Strides of a batched matrix.
struct PlainStrides {
  std::int64_t batch, row, column;
};

PlainStrides plain_strides(const View& v) {
  const int lead = v.ndim - 2;
  const auto at = [&](int d) { return v.strides[static_cast<std::size_t>(d)]; };
  return {lead == 1 ? at(0) : 0, at(lead), at(lead + 1)};
}

template <class T>
struct PlainProduct : PerElement {
  using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, Wide<T>>;
  T* out;
  const T* a;
  const T* b;
  PlainStrides to, left, right;
  std::int64_t rows, columns, depth, count;
  Sum alpha, beta;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count; i += block.grid_threads()) {
      const std::int64_t column = i % columns;
      const std::int64_t row = i / columns % rows;
      const std::int64_t batch = i / columns / rows;
      const T* x = a + batch * left.batch + row * left.row;
      const T* y = b + batch * right.batch + column * right.column;
      Sum sum = 0;
      for (std::int64_t p = 0; p < depth; ++p)
        sum += static_cast<Sum>(x[p * left.column]) * static_cast<Sum>(y[p * right.row]);
      T& cell = out[batch * to.batch + row * to.row + column * to.column];
      Sum value = alpha * sum;
      if (beta != 0) value += beta * static_cast<Sum>(cell);
      cell = static_cast<T>(value);
    }
  }
};

}  // namespace

void run_plain(CudaDevice& device, const Matmul& args) {
  const auto lead = static_cast<std::size_t>(args.out.ndim - 2);
  with_any(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Sum = typename PlainProduct<T>::Sum;
    PlainProduct<T> kernel{};
    kernel.out = as<T>(args.out.data);
    kernel.a = as<T>(args.a.data);
    kernel.b = as<T>(args.b.data);
    kernel.to = plain_strides(args.out);
    kernel.left = plain_strides(args.a);
    kernel.right = plain_strides(args.b);
    kernel.rows = args.out.shape[lead];
    kernel.columns = args.out.shape[lead + 1];
    kernel.depth = args.a.shape[lead + 1];
    kernel.count = count_of(args.out);
    kernel.alpha = static_cast<Sum>(args.alpha);
    kernel.beta = static_cast<Sum>(args.beta);
    launch_elements(device, "plain matmul", kernel, kernel.count);
  });
}

}  // namespace coshard::kernels::cuda
