// Functions of one dense array. One kernel per dtype: the operation is the same for a whole launch,
// so that a branch per pack is hidden by the memory accesses.
#include "kernels/convert.h"
#include "kernels/cuda/elements.h"
#include "kernels/elementwise/scalar_math.h"

namespace coshard::kernels::cuda {
namespace {

template <class T>
struct UnaryKernel : PerElement {
  static constexpr int kDeep = sizeof(T) == 2 ? 1 : 2;
  Elements<2> all;
  UnaryOp op;
  Wide<T> alpha, beta;
  const T* x;
  T* y;
  CS_BODY void operator()(Block& block) const {
    each_pack<kPackOf<T>, kDeep>(block, all, [this](const auto& places) {
      const auto in = places.load(1, x);
      constexpr int kCount = sizeof(in) / sizeof(T);
      Wide<T> values[kCount];
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) values[i] = widen(in.at[i]);
      with_function(op, [&]<class F>(F) {
        if constexpr (!std::is_integral_v<T>) {
          CS_UNROLL
          for (int i = 0; i < kCount; ++i)
            values[i] = F::value(elementwise::ScalarMath<Wide<T>>(), values[i], alpha, beta);
        } else if constexpr (elementwise::TakesIntegers<F>) {
          CS_UNROLL
          for (int i = 0; i < kCount; ++i) values[i] = F::of_integer(values[i], alpha, beta);
        }
      });
      Tile<T, kCount> out;
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) out.at[i] = static_cast<T>(values[i]);
      places.store(0, y, out);
    });
  }
};

// For floats, the value itself.
template <class T>
T unary_bound(double value) {
  if constexpr (std::is_integral_v<T>) return integer_bound<T>(value);
  return static_cast<T>(value);
}

template <class T>
void launch_unary(CudaDevice& device, const Unary& args) {
  UnaryKernel<T> kernel{};
  kernel.all = run_of<2>(args.count, kPackOf<T>, {Operand{args.y, sizeof(T)}, {args.x, sizeof(T)}});
  const bool square = args.op == UnaryOp::PowScalar && args.alpha == 2;
  kernel.op = square ? UnaryOp::Square : args.op;
  kernel.alpha = unary_bound<Wide<T>>(args.alpha);
  kernel.beta = unary_bound<Wide<T>>(args.beta);
  kernel.x = as<T>(args.x);
  kernel.y = as<T>(args.y);
  launch_elements(device, "unary", kernel, kernel.all.packs, UnaryKernel<T>::kDeep);
}

}  // namespace

void run(CudaDevice& device, const Unary& args) {
  if (args.count == 0) return;
  if (is_floating(args.dtype) || args.dtype == DType::Bool)
    return with_floating(args.dtype, [&](auto tag) { launch_unary<decltype(tag)>(device, args); });
  if (!takes_integers(args.op))
    fail(ErrorKind::Unsupported, str_cat(to_string(args.op), " does not support ", args.dtype));
  with_index(args.dtype, [&](auto tag) { launch_unary<decltype(tag)>(device, args); });
}

}  // namespace coshard::kernels::cuda
