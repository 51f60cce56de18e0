// Functions of one dense array. One kernel per dtype: the operation is the same for a whole launch,
// so that a branch per pack costs nothing beside the memory.
#include "kernels/convert.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/functions.h"
#include "kernels/integer_power.h"

namespace coshard::kernels::cuda {
namespace {

// NaN stays; a bound that is NaN wins.
template <class W>
CS_BODY W clamped(W x, W low, W high) {
  if (x != x) return x;
  const W raised = low != low || low > x ? low : x;
  return high != high || high < raised ? high : raised;
}

template <class W, int N>
CS_BODY void apply_unary(UnaryOp op, W a, W b, W (&x)[N]) {
  switch (op) {
    case UnaryOp::Neg: return each(x, [](W v) { return -v; });
    case UnaryOp::Abs: return each(x, [](W v) { return std::fabs(v); });
    case UnaryOp::Exp: return each(x, [](W v) { return std::exp(v); });
    case UnaryOp::Log: return each(x, [](W v) { return std::log(v); });
    case UnaryOp::Sqrt: return each(x, [](W v) { return std::sqrt(v); });
    case UnaryOp::Rsqrt: return each(x, [](W v) { return W(1) / std::sqrt(v); });
    case UnaryOp::Tanh: return each(x, [](W v) { return std::tanh(v); });
    case UnaryOp::Sigmoid: return each(x, [](W v) { return sigmoid(v); });
    case UnaryOp::Relu: return each(x, [](W v) { return v < 0 ? W(0) : v; });
    case UnaryOp::Silu: return each(x, [](W v) { return silu(v); });
    case UnaryOp::Gelu: return each(x, [](W v) { return v * normal_cdf(v); });
    case UnaryOp::GeluTanh:
      return each(x, [](W v) { return W(0.5) * v * (W(1) + gelu_tanh_inner(v)); });
    case UnaryOp::Square: return each(x, [](W v) { return v * v; });
    case UnaryOp::Reciprocal: return each(x, [](W v) { return W(1) / v; });
    case UnaryOp::Sign: return each(x, [](W v) { return W((v > 0) - (v < 0)); });
    case UnaryOp::Erf: return each(x, [](W v) { return std::erf(v); });
    case UnaryOp::LeakyRelu: return each(x, [a](W v) { return v > 0 ? v : v * a; });
    case UnaryOp::Clamp: return each(x, [a, b](W v) { return clamped(v, a, b); });
    case UnaryOp::AddScalar: return each(x, [a](W v) { return v + a; });
    case UnaryOp::MulScalar: return each(x, [a](W v) { return v * a; });
    case UnaryOp::PowScalar: return each(x, [a](W v) { return std::pow(v, a); });
    case UnaryOp::Sin: return each(x, [](W v) { return std::sin(v); });
    case UnaryOp::Cos: return each(x, [](W v) { return std::cos(v); });
    case UnaryOp::Floor: return each(x, [](W v) { return std::floor(v); });
    case UnaryOp::Log1p: return each(x, [](W v) { return std::log1p(v); });
    case UnaryOp::Expm1: return each(x, [](W v) { return std::expm1(v); });
    case UnaryOp::Softplus:
      return each(x, [](W v) { return v > 20 ? v : std::log1p(std::exp(v)); });
  }
}

template <class T, int N>
CS_BODY void apply_integer_unary(UnaryOp op, T a, T b, T (&x)[N]) {
  switch (op) {
    case UnaryOp::Neg: return each(x, [](T v) { return wrapping_negate(v); });
    case UnaryOp::Abs: return each(x, [](T v) { return v < 0 ? wrapping_negate(v) : v; });
    case UnaryOp::Relu: return each(x, [](T v) { return v < 0 ? T(0) : v; });
    case UnaryOp::Square: return each(x, [](T v) { return wrapping_multiply(v, v); });
    case UnaryOp::Sign: return each(x, [](T v) { return T((v > 0) - (v < 0)); });
    case UnaryOp::Clamp:
      return each(x, [a, b](T v) {
        const T raised = v < a ? a : v;
        return raised < b ? raised : b;
      });
    case UnaryOp::AddScalar: return each(x, [a](T v) { return wrapping_add(v, a); });
    case UnaryOp::MulScalar: return each(x, [a](T v) { return wrapping_multiply(v, a); });
    case UnaryOp::PowScalar: return each(x, [a](T v) { return integer_power(v, a); });
    default: return;  // Floor
  }
}

bool takes_integers(UnaryOp op) {
  switch (op) {
    case UnaryOp::Neg:
    case UnaryOp::Abs:
    case UnaryOp::Relu:
    case UnaryOp::Square:
    case UnaryOp::Sign:
    case UnaryOp::Floor:
    case UnaryOp::Clamp:
    case UnaryOp::AddScalar:
    case UnaryOp::MulScalar:
    case UnaryOp::PowScalar: return true;
    default: return false;
  }
}

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
      if constexpr (std::is_integral_v<T>) {
        apply_integer_unary(op, alpha, beta, values);
      } else {
        apply_unary(op, alpha, beta, values);
      }
      Tile<T, kCount> out;
      CS_UNROLL
      for (int i = 0; i < kCount; ++i) out.at[i] = static_cast<T>(values[i]);
      places.store(0, y, out);
    });
  }
};

// Of floats the value itself.
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
    fail(ErrorKind::Unsupported, cat("unary op ", static_cast<int>(args.op), " of ", args.dtype));
  with_index(args.dtype, [&](auto tag) { launch_unary<decltype(tag)>(device, args); });
}

}  // namespace coshard::kernels::cuda
