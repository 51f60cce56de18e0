// Gradients of functions of one dense array, and the gated SiLU with its gradients.
#include "kernels/cuda/elements.h"
#include "kernels/elementwise/scalar_math.h"

namespace coshard::kernels::cuda {
namespace {

using elementwise::Silu;
template <class W>
CS_BODY W silu(W x) {
  return Silu::value(elementwise::ScalarMath<W>(), x, x, x);
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
  UnaryOp op;
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
      with_function(op, [&]<class F>(F) {
        CS_UNROLL
        for (int i = 0; i < kCount; ++i)
          values[i] = elementwise::gradient<F>(elementwise::ScalarMath<Wide<T>>(), grads[i],
                                               values[i], alpha, beta);
      });
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
        of_gate.at[i] =
            static_cast<T>(g * widen(up.at[i]) *
                           Silu::derivative(elementwise::ScalarMath<decltype(x)>(), x, x, x));
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
    kernel.beta = static_cast<Wide<T>>(args.beta);
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
