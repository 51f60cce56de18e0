// Gradients of functions of one dense array, and the gated SiLU with its gradients.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/functions.h"

namespace coshard::kernels::cuda {
namespace {

template <class W, int N, class F>
CS_BODY void each_slope(W (&x)[N], const W (&dy)[N], const F& slope) {
  CS_UNROLL
  for (int i = 0; i < N; ++i) x[i] = dy[i] * slope(x[i]);
}

// Those with a slope that depends on the function's result.
template <class W, int N>
CS_BODY void gradient_from_result(UnaryGradOp op, const W (&dy)[N], W (&y)[N]) {
  switch (op) {
    case UnaryGradOp::Exp: return each_slope(y, dy, [](W v) { return v; });
    case UnaryGradOp::Expm1: return each_slope(y, dy, [](W v) { return v + W(1); });
    case UnaryGradOp::Sqrt: return each_slope(y, dy, [](W v) { return W(0.5) / v; });
    case UnaryGradOp::Rsqrt: return each_slope(y, dy, [](W v) { return W(-0.5) * v * v * v; });
    case UnaryGradOp::Tanh: return each_slope(y, dy, [](W v) { return W(1) - v * v; });
    case UnaryGradOp::Sigmoid: return each_slope(y, dy, [](W v) { return v * (W(1) - v); });
    default: return each_slope(y, dy, [](W v) { return -v * v; });  // Reciprocal
  }
}

template <class W>
CS_BODY W gelu_slope(W x) {
  return normal_cdf(x) + x * std::exp(W(-0.5) * x * x) * W(0.39894228040143267794);
}
template <class W>
CS_BODY W gelu_tanh_slope(W x) {
  const W t = gelu_tanh_inner(x);
  const W inner = W(kGeluTanhScale) * (W(1) + W(3 * kGeluTanhCubic) * x * x);
  return W(0.5) * (W(1) + t) + W(0.5) * x * (W(1) - t * t) * inner;
}
template <class W>
CS_BODY W erf_slope(W x) {
  return W(1.12837916709551257390) * std::exp(-x * x);
}

// Becomes dx in x. The gradients of Relu and Clamp are there or not, whatever dy is; the others are
// products with a slope.
template <class W, int N>
CS_BODY void apply_gradient(UnaryGradOp op, W a, W b, const W (&dy)[N], W (&x)[N]) {
  switch (op) {
    case UnaryGradOp::Relu:
      CS_UNROLL
      for (int i = 0; i < N; ++i) x[i] = x[i] <= 0 ? W(0) : dy[i];
      return;
    case UnaryGradOp::Clamp:
      CS_UNROLL
      for (int i = 0; i < N; ++i) x[i] = x[i] >= a && x[i] <= b ? dy[i] : W(0);
      return;
    case UnaryGradOp::Silu: return each_slope(x, dy, [](W v) { return silu_slope(v); });
    case UnaryGradOp::Gelu: return each_slope(x, dy, [](W v) { return gelu_slope(v); });
    case UnaryGradOp::GeluTanh: return each_slope(x, dy, [](W v) { return gelu_tanh_slope(v); });
    case UnaryGradOp::Abs: return each_slope(x, dy, [](W v) { return W((v > 0) - (v < 0)); });
    case UnaryGradOp::Log: return each_slope(x, dy, [](W v) { return W(1) / v; });
    case UnaryGradOp::Softplus:
      return each_slope(x, dy, [](W v) { return v > 20 ? W(1) : sigmoid(v); });
    case UnaryGradOp::Square: return each_slope(x, dy, [](W v) { return W(2) * v; });
    case UnaryGradOp::Erf: return each_slope(x, dy, [](W v) { return erf_slope(v); });
    case UnaryGradOp::LeakyRelu: return each_slope(x, dy, [a](W v) { return v > 0 ? W(1) : a; });
    case UnaryGradOp::Log1p: return each_slope(x, dy, [](W v) { return W(1) / (W(1) + v); });
    case UnaryGradOp::PowScalar:
      return each_slope(x, dy, [a, b](W v) { return a == 0 ? W(0) : a * std::pow(v, b); });
    case UnaryGradOp::Sin: return each_slope(x, dy, [](W v) { return std::cos(v); });
    case UnaryGradOp::Cos: return each_slope(x, dy, [](W v) { return -std::sin(v); });
    default: return gradient_from_result(op, dy, x);
  }
}

template <class T, int N>
CS_BODY void widen_all(const Tile<T, N>& from, Wide<T> (&to)[N]) {
  CS_UNROLL
  for (int i = 0; i < N; ++i) to[i] = widen(from.at[i]);
}
template <class T, int N>
CS_BODY void narrow_all(const Wide<T> (&from)[N], Tile<T, N>& to) {
  CS_UNROLL
  for (int i = 0; i < N; ++i) to.at[i] = static_cast<T>(from[i]);
}

template <class T>
struct UnaryGradKernel : PerElement {
  Elements<3> all;
  UnaryGradOp op;
  Wide<T> alpha, beta;
  const T* dy;
  const T* x;
  T* dx;
  CS_BODY void operator()(Block& block) const {
    each_pack<kPackOf<T>, 1>(block, all, [this](const auto& places) {
      constexpr int kCount = kPackOf<T>;
      Wide<T> values[kCount], grads[kCount];
      const auto grad = places.load(1, dy);
      const auto in = places.load(2, x);
      widen_all(grad, grads);
      widen_all(in, values);
      apply_gradient(op, alpha, beta, grads, values);
      Tile<T, kCount> out;
      narrow_all<T>(values, out);
      places.store(0, dx, out);
    });
  }
};

template <class T>
struct SwiGluKernel : PerElement {
  Elements<3> all;
  const T* a;
  const T* b;
  T* y;
  CS_BODY void operator()(Block& block) const {
    each_pack<kPackOf<T>, 1>(block, all, [this](const auto& places) {
      const auto gate = places.load(1, a);
      const auto up = places.load(2, b);
      Tile<T, kPackOf<T>> out;
      CS_UNROLL
      for (int i = 0; i < kPackOf<T>; ++i)
        out.at[i] = static_cast<T>(silu(widen(gate.at[i])) * widen(up.at[i]));
      places.store(0, y, out);
    });
  }
};

template <class T>
struct SwiGluGradKernel : PerElement {
  Elements<5> all;  // da, db, dy, a, b
  const T* dy;
  const T* a;
  const T* b;
  T* da;
  T* db;
  CS_BODY void operator()(Block& block) const {
    each_pack<kPackOf<T>, 1>(block, all, [this](const auto& places) {
      const auto grad = places.load(2, dy);
      const auto gate = places.load(3, a);
      const auto up = places.load(4, b);
      Tile<T, kPackOf<T>> of_gate, of_up;
      CS_UNROLL
      for (int i = 0; i < kPackOf<T>; ++i) {
        const auto g = widen(grad.at[i]);
        const auto x = widen(gate.at[i]);
        of_gate.at[i] = static_cast<T>(g * widen(up.at[i]) * silu_slope(x));
        of_up.at[i] = static_cast<T>(g * silu(x));
      }
      places.store(0, da, of_gate);
      places.store(1, db, of_up);
    });
  }
};

}  // namespace

void run(CudaDevice& device, const UnaryGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr std::size_t kBytes = sizeof(T);
    UnaryGradKernel<T> kernel{};
    kernel.all = run_of<3>(args.count, kPackOf<T>,
                           {Operand{args.dx, kBytes}, {args.dy, kBytes}, {args.x, kBytes}});
    kernel.op = args.op;
    kernel.alpha = static_cast<Wide<T>>(args.alpha);
    const bool power = args.op == UnaryGradOp::PowScalar;
    kernel.beta = static_cast<Wide<T>>(power ? args.alpha - 1 : args.beta);
    kernel.dy = as<T>(args.dy);
    kernel.x = as<T>(args.x);
    kernel.dx = as<T>(args.dx);
    launch_elements(device, "unary gradient", kernel, kernel.all.packs);
  });
}

void run(CudaDevice& device, const SwiGlu& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr std::size_t kBytes = sizeof(T);
    SwiGluKernel<T> kernel{};
    kernel.all = run_of<3>(args.count, kPackOf<T>,
                           {Operand{args.y, kBytes}, {args.a, kBytes}, {args.b, kBytes}});
    kernel.a = as<T>(args.a);
    kernel.b = as<T>(args.b);
    kernel.y = as<T>(args.y);
    launch_elements(device, "swiglu", kernel, kernel.all.packs);
  });
}

void run(CudaDevice& device, const SwiGluGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr std::size_t kBytes = sizeof(T);
    SwiGluGradKernel<T> kernel{};
    const std::array<Operand, 5> operands = {Operand{args.da, kBytes},
                                             {args.db, kBytes},
                                             {args.dy, kBytes},
                                             {args.a, kBytes},
                                             {args.b, kBytes}};
    kernel.all = run_of<5>(args.count, kPackOf<T>, operands);
    kernel.dy = as<T>(args.dy);
    kernel.a = as<T>(args.a);
    kernel.b = as<T>(args.b);
    kernel.da = as<T>(args.da);
    kernel.db = as<T>(args.db);
    launch_elements(device, "swiglu gradient", kernel, kernel.all.packs);
  });
}

}  // namespace coshard::kernels::cuda
