// Functions of two arrays, or of an array and a number, with broadcasting.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/functions.h"
#include "kernels/integer_power.h"

namespace coshard::kernels::cuda {
namespace {

// What T is computed in; of bool, integers.
template <class T>
using BinaryValue = std::conditional_t<std::is_same_v<T, bool>, std::int32_t, Wide<T>>;

// Quotient or remainder (with the sign of b); 0 where b is 0, which is found before.
template <class C>
CS_BODY C integer_division(C a, C b, bool remainder) {
  if (b == 0) return 0;
  if (b == -1) return remainder ? C(0) : wrapping_negate(a);
  if (!remainder) return a / b;
  const C rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

template <class C, int N, class F>
CS_BODY void each_pair(C (&a)[N], const C (&b)[N], const F& f) {
  CS_UNROLL
  for (int i = 0; i < N; ++i) a[i] = f(a[i], b[i]);
}

template <class C, int N>
CS_BODY void apply_integers(BinaryOp op, C (&a)[N], const C (&b)[N]) {
  switch (op) {
    case BinaryOp::Add: return each_pair(a, b, [](C x, C y) { return wrapping_add(x, y); });
    case BinaryOp::Sub:
      return each_pair(a, b, [](C x, C y) { return wrapping_add(x, wrapping_negate(y)); });
    case BinaryOp::Mul: return each_pair(a, b, [](C x, C y) { return wrapping_multiply(x, y); });
    case BinaryOp::Maximum: return each_pair(a, b, [](C x, C y) { return x > y ? x : y; });
    case BinaryOp::Minimum: return each_pair(a, b, [](C x, C y) { return x < y ? x : y; });
    case BinaryOp::Pow: return each_pair(a, b, [](C x, C y) { return integer_power(x, y); });
    default: {
      const bool remainder = op == BinaryOp::Remainder;
      return each_pair(a, b, [remainder](C x, C y) { return integer_division(x, y, remainder); });
    }
  }
}

template <class C>
CS_BODY C float_remainder(C a, C b) {
  const C rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Maximum and minimum carry NaN on.
template <class C, int N>
CS_BODY void apply_floats(BinaryOp op, C (&a)[N], const C (&b)[N]) {
  switch (op) {
    case BinaryOp::Add: return each_pair(a, b, [](C x, C y) { return x + y; });
    case BinaryOp::Sub: return each_pair(a, b, [](C x, C y) { return x - y; });
    case BinaryOp::Mul: return each_pair(a, b, [](C x, C y) { return x * y; });
    case BinaryOp::Div: return each_pair(a, b, [](C x, C y) { return x / y; });
    case BinaryOp::Maximum:
      return each_pair(a, b, [](C x, C y) { return x != x || x > y ? x : y; });
    case BinaryOp::Minimum:
      return each_pair(a, b, [](C x, C y) { return x != x || x < y ? x : y; });
    case BinaryOp::Pow: return each_pair(a, b, [](C x, C y) { return std::pow(x, y); });
    case BinaryOp::Remainder:
      return each_pair(a, b, [](C x, C y) { return float_remainder(x, y); });
    case BinaryOp::Atan2: return each_pair(a, b, [](C x, C y) { return std::atan2(x, y); });
    default:  // Step
      return each_pair(a, b, [](C x, C y) { return x < y ? C(0) : x == y ? C(0.5) : C(1); });
  }
}

template <class C>
CS_BODY bool compares(BinaryOp op, C a, C b) {
  switch (op) {
    case BinaryOp::Lt: return a < b;
    case BinaryOp::Le: return a <= b;
    case BinaryOp::Gt: return a > b;
    case BinaryOp::Ge: return a >= b;
    case BinaryOp::Eq: return a == b;
    default: return a != b;
  }
}

template <class T, class Out, int kSize>
struct BinaryKernel : PerElement {
  using C = BinaryValue<T>;
  static constexpr int kDeep = kSize == 1 ? 2 : 1;
  static constexpr int kCount = kSize * kDeep;
  Elements<3> all;
  BinaryOp op;
  C alpha;
  const T* a;
  const T* b;  // null: alpha stands for it
  Out* out;
  Finding* finding;

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
      Tile<Out, kCount> result;
      if constexpr (std::is_same_v<Out, bool> && !std::is_same_v<T, bool>) {
        CS_UNROLL
        for (int i = 0; i < kCount; ++i) result.at[i] = compares(op, left[i], right[i]);
      } else {
        arithmetic(block, places, left, right);
        CS_UNROLL
        for (int i = 0; i < kCount; ++i) result.at[i] = static_cast<Out>(left[i]);
      }
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

  // Bool does both here: comparisons, too, write it.
  template <class P>
  CS_BODY void arithmetic(Block& block, const P& places, C (&left)[kCount],
                          const C (&right)[kCount]) const {
    if constexpr (std::is_integral_v<C>) {
      if (is_comparison(op)) {
        CS_UNROLL
        for (int i = 0; i < kCount; ++i) left[i] = compares(op, left[i], right[i]);
        return;
      }
      if (op == BinaryOp::Div || op == BinaryOp::Remainder) {
        for (int i = 0; i < kCount; ++i)
          if (right[i] == 0 && places.has(i / kSize, i % kSize))
            leave(block, finding, FindingKind::Division, left[i], 0);
      }
      apply_integers(op, left, right);
    } else {
      apply_floats(op, left, right);
    }
  }
};

// A number beside a tensor, as precise as that tensor's arithmetic; compared, as its elements.
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
  const bool special = args.op == BinaryOp::Atan2 || args.op == BinaryOp::Step;
  if (special && !is_floating(args.a.dtype))
    fail(ErrorKind::Unsupported, cat("binary op ", static_cast<int>(args.op), " of integers"));
  with_any(args.a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (is_comparison(args.op)) return launch_views<T, bool>(device, args);
    launch_views<T, T>(device, args);
  });
}

}  // namespace coshard::kernels::cuda
