#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {

namespace {

template <class T>
void update(const AdamW& args, const AdamWTensor& of) {
  using S = Statistic<T>;
  const double step_size = args.lr / (1 - std::pow(args.beta1, args.step));
  const double root_correction = std::sqrt(1 - std::pow(args.beta2, args.step));
  T* param = as<T>(of.param);
  S* master = as<S>(of.master);
  S* largest = as<S>(of.largest_v);
  for (std::int64_t i = 0; i < of.count; ++i) {
    const double grad = get(as<T>(of.grad), i) * args.grad_scale;
    S& m = as<S>(of.m)[i];
    S& v = as<S>(of.v)[i];
    m = static_cast<S>(args.beta1 * m + (1 - args.beta1) * grad);
    v = static_cast<S>(args.beta2 * v + (1 - args.beta2) * grad * grad);
    if (largest != nullptr) largest[i] = std::max(largest[i], v);
    const double divisor = largest != nullptr ? largest[i] : v;
    const double old = master != nullptr ? static_cast<double>(master[i]) : get(param, i);
    const double decayed = old * (1 - args.lr * args.weight_decay);
    const double change = step_size * m / (std::sqrt(divisor) / root_correction + args.eps);
    const double value = decayed - change;
    if (master != nullptr) master[i] = static_cast<S>(value);
    param[i] = rounded<T>(value);
  }
}

}  // namespace

void run(const AdamW& args) {
  with_floating(args.dtype, [&](auto tag) {
    for (const AdamWTensor& of : args.tensors) update<decltype(tag)>(args, of);
  });
}

void run(const Sgd& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* param = as<T>(args.param);
    T* momentum = as<T>(args.momentum);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const double old = get(param, i);
      double grad = get(as<T>(args.grad), i) * args.grad_scale + args.weight_decay * old;
      if (momentum != nullptr) {
        const double fresh =
            args.first ? grad
                       : args.momentum_factor * get(momentum, i) + (1 - args.dampening) * grad;
        momentum[i] = rounded<T>(fresh);
        grad = args.nesterov ? grad + args.momentum_factor * fresh : fresh;
      }
      param[i] = rounded<T>(old - args.lr * grad);
    }
  });
}

}  // namespace coshard::kernels::reference
