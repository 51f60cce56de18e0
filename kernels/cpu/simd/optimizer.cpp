// AdamW and SGD updates.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

void run(const AdamW& args) {
  // __builtin_pow of doubles calls the C library, once per tensor.
  const double step = static_cast<double>(args.step);
  const auto step_size = static_cast<Real>(args.lr / (1 - __builtin_pow(args.beta1, step)));
  const auto inverse_root =
      static_cast<Real>(1 / __builtin_sqrt(1 - __builtin_pow(args.beta2, step)));
  const auto beta1 = static_cast<Real>(args.beta1);
  const auto beta2 = static_cast<Real>(args.beta2);
  const auto rest1 = static_cast<Real>(1 - args.beta1);
  const auto rest2 = static_cast<Real>(1 - args.beta2);
  const auto keep = static_cast<Real>(1 - args.lr * args.weight_decay);
  const auto eps = static_cast<Real>(args.eps);
  const auto grad_scale = static_cast<Real>(args.grad_scale);
  const auto update = [=](const AdamWTensor& of, auto tag) {
    using T = decltype(tag);
    Real* m = as<Real>(of.m);
    Real* v = as<Real>(of.v);
    Real* master = as<Real>(of.master);
    Real* largest = as<Real>(of.largest_v);
    T* param = as<T>(of.param);
    const T* grads = as<T>(of.grad);
    parallel(of.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec grad = lanes.load(grads + i) * grad_scale;
            const Vec first = lanes.load(m + i) * beta1 + grad * rest1;
            const Vec second = lanes.load(v + i) * beta2 + grad * grad * rest2;
            const Vec old = master == nullptr ? lanes.load(param + i) : lanes.load(master + i);
            Vec highest = second;
            if (largest != nullptr) {
              highest = maximum(second, lanes.load(largest + i));
              lanes.store(largest + i, highest);
            }
            const Vec divisor = square_root(highest) * inverse_root + eps;
            const Vec value = old * keep - step_size * first / divisor;
            lanes.store(m + i, first);
            lanes.store(v + i, second);
            if (master != nullptr) lanes.store(master + i, value);
            lanes.store(param + i, value);
          });
    });
  };
  with_stored(args.dtype, [&](auto tag) {
    for (const AdamWTensor& of : args.tensors) update(of, tag);
  });
}

void run(const Sgd& args) {
  const auto lr = static_cast<Real>(args.lr);
  const auto factor = static_cast<Real>(args.momentum_factor);
  const auto share = static_cast<Real>(1 - args.dampening);
  const bool nesterov = args.nesterov;
  const auto decay = static_cast<Real>(args.weight_decay);
  const auto grad_scale = static_cast<Real>(args.grad_scale);
  const bool first = args.first;
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* param = as<T>(args.param);
    const T* grads = as<T>(args.grad);
    T* momentum = as<T>(args.momentum);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec old = lanes.load(param + i);
            Vec grad = lanes.load(grads + i) * grad_scale + old * decay;
            if (momentum != nullptr) {
              const Vec fresh = first ? grad : lanes.load(momentum + i) * factor + grad * share;
              lanes.store(momentum + i, fresh);
              grad = nesterov ? grad + fresh * factor : fresh;
            }
            lanes.store(param + i, old - grad * lr);
          });
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
