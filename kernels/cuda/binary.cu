// Functions of two arrays, or of an array and a scalar, with broadcasting.
#include "kernels/cuda/elements.h"
#include "kernels/elementwise/scalar_math.h"

namespace coshard::kernels::cuda {
namespace {

// The compute type of T; integers for bool.
template <class T>
using BinaryValue = std::conditional_t<std::is_same_v<T, bool>, std::int32_t, Wide<T>>;

// Whether F of T returns Out; always true for bool.
template <class F, class T, class Out>
constexpr bool kGives =
    std::is_same_v<Out, std::conditional_t<elementwise::Comparison<F>, bool, T>>;

template <class T, class Out, int kSize>
struct BinaryKernel : PerElement {
  using C = BinaryValue<T>;
  static constexpr int kDeep = kSize == 1 ? 2 : 1;
  static constexpr int kCount = kSize * kDeep;
  Elements<3> all;
  BinaryOp op;
  bool divides;
  C alpha;
  const T* a;
  const T* b;  // null: alpha replaces it
  Out* out;
  DeviceAssert* finding;

  CS_BODY void operator()(Block& block) const {
    each_pack<kSize, kDeep>(block, all, [&](const auto& places) {
      C left[kCount], right[kCount];
      const auto in = places.load(1, a);
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) right[i] = alpha;
      if (b != nullptr) {
        const auto other = places.load(2, b);
        CS_UNROLL
        for (int i = 0; i < kCount; ++i) right[i] = scaled(static_cast<C>(other.at[i]));
      }
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) left[i] = static_cast<C>(in.at[i]);
      if constexpr (std::is_integral_v<C>) look_for_zeros(block, places, left, right);
      with_function(op, [&]<class F>(F) {
        if constexpr (kGives<F, T, Out> &&
                      (!std::is_integral_v<C> || elementwise::TakesTwoIntegers<F>)) {
          CS_UNROLL
          for (int i = 0; i < kCount; ++i)
            left[i] = elementwise::apply<F>(elementwise::ScalarMath<C>(), left[i], right[i]);
        }
      });
      Tile<Out, kCount> result;
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) result.at[i] = static_cast<Out>(left[i]);
      places.store(0, out, result);
    });
  }

  CS_BODY C scaled(C value) const {
    if constexpr (std::is_integral_v<C>) {
      return wrapping_multiply(alpha, value);
    } else {
      return alpha * value;
    }
  }

  template <class P>
  CS_BODY void look_for_zeros(Block& block, const P& places, const C (&left)[kCount],
                              const C (&right)[kCount]) const {
    if (!divides) return;
    for (int i = 0; i < kCount; ++i)
      if (right[i] == 0 && places.has(i / kSize, i % kSize))
        leave(block, finding, DeviceAssertKind::Division, left[i], 0);
  }
};

// The scalar operand, in the precision of the tensor's arithmetic; in comparisons, rounded to its
// dtype.
template <class T>
BinaryValue<T> operand_of(const Binary& args) {
  using C = BinaryValue<T>;
  if constexpr (is_short_float<T>) {
    if (args.b.data == nullptr && is_comparison(args.op))
      return static_cast<float>(T(static_cast<float>(args.alpha)));
  }
  return static_cast<C>(args.alpha);
}

template <class T, class Out, int kSize>
void launch_binary(CudaDevice& device, const Binary& args, const Elements<3>& all) {
  using Kernel = BinaryKernel<T, Out, kSize>;
  Kernel kernel{};
  kernel.all = all;
  kernel.op = args.op;
  kernel.divides = divides(args.op);
  kernel.alpha = operand_of<T>(args);
  kernel.a = as<T>(static_cast<const void*>(args.a.data));
  kernel.b = as<T>(static_cast<const void*>(args.b.data));
  kernel.out = as<Out>(args.out.data);
  kernel.finding = device.finding();
  launch_elements(device, "binary", kernel, all.packs, Kernel::kDeep);
}

template <class T, class Out>
void launch_views(CudaDevice& device, const Binary& args) {
  constexpr int kSize = kPackOf<T>;
  int pack = kSize;
  const auto all = elements_of<3>({&args.out, &args.a, &args.b}, pack);
  if (pack == kSize) return launch_binary<T, Out, kSize>(device, args, all);
  launch_binary<T, Out, 1>(device, args, all);
}

}  // namespace

void run(CudaDevice& device, const Binary& args) {
  if (!is_floating(args.a.dtype) && !takes_integers(args.op))
    fail(ErrorKind::Unsupported, str_cat(to_string(args.op), " does not support ", args.a.dtype));
  with_any(args.a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (is_comparison(args.op)) return launch_views<T, bool>(device, args);
    launch_views<T, T>(device, args);
  });
}

}  // namespace coshard::kernels::cuda
