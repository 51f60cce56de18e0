// Parameter updates. AdamW processes as many tensors as fit into one launch: each block has a chunk
// of one of them.
#include <cmath>

#include "kernels/cuda/elements.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kAdamTensors = 64;           // fits into 4096 bytes of arguments
constexpr std::int64_t kAdamChunk = 4096;  // elements per block
constexpr int kAdamPack = 4;               // 16 bytes of f32

template <class T>
struct AdamWKernel : PerElement {
  using S = Wide<T>;
  AdamWTensor tensors[kAdamTensors];
  std::uint32_t first_block[kAdamTensors];
  int count;
  S beta1, rest1, beta2, rest2, eps, grad_scale;
  struct Rates {
    S step_size, root_correction, decay;
  } rates;
  const double* changing;  // null: `rates`

  CS_BODY Rates rates_now() const {
    if (changing == nullptr) return rates;
    return {static_cast<S>(changing[0]), static_cast<S>(changing[1]), static_cast<S>(changing[2])};
  }

  CS_BODY void operator()(Block& block) const {
    const Rates now = rates_now();
    const int which = tensor_of(block.index());
    const AdamWTensor& of = tensors[which];
    const std::int64_t begin =
        static_cast<std::int64_t>(block.index() - first_block[which]) * kAdamChunk;
    const std::int64_t end = begin + kAdamChunk < of.count ? begin + kAdamChunk : of.count;
    const bool aligned = is_aligned(of);
    for (std::int64_t i = begin + block.thread() * kAdamPack; i < end;
         i += block.threads() * kAdamPack) {
      if (aligned && i + kAdamPack <= end) {
        update<kAdamPack>(of, i, now);
      } else {
        for (std::int64_t j = i; j < end && j < i + kAdamPack; ++j) update<1>(of, j, now);
      }
    }
  }

  // The last tensor that begins at or before `block`.
  CS_BODY int tensor_of(std::uint32_t block) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      if (first_block[middle] <= block) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  CS_BODY static bool is_aligned(const AdamWTensor& of) {
    const auto bits = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
    return (bits(of.param) | bits(of.grad)) % alignof(Pack<T, kAdamPack>) == 0 &&
           (bits(of.m) | bits(of.v) | bits(of.master) | bits(of.largest_v)) % kPackBytes == 0;
  }

  template <class E, int N>
  CS_BODY static Pack<E, N> load(const void* from, std::int64_t at) {
    return load_pack<N>(static_cast<const E*>(from) + at);
  }
  template <class E, int N>
  CS_BODY static void store(void* to, std::int64_t at, const Pack<E, N>& pack) {
    store_pack<N>(static_cast<E*>(to) + at, pack);
  }

  template <int N>
  CS_BODY void update(const AdamWTensor& of, std::int64_t i, const Rates& now) const {
    const auto grad = load<T, N>(of.grad, i);
    auto param = load<T, N>(of.param, i);
    auto m = load<S, N>(of.m, i);
    auto v = load<S, N>(of.v, i);
    Pack<S, N> value, largest;
    CS_UNROLL
    for (int e = 0; e < N; ++e) value.at[e] = widen(param.at[e]);
    if (of.master != nullptr) value = load<S, N>(of.master, i);
    if (of.largest_v != nullptr) largest = load<S, N>(of.largest_v, i);
    CS_UNROLL
    for (int e = 0; e < N; ++e) {
      const S g = widen(grad.at[e]) * grad_scale;
      m.at[e] = beta1 * m.at[e] + rest1 * g;
      v.at[e] = beta2 * v.at[e] + rest2 * g * g;
      if (of.largest_v == nullptr || largest.at[e] < v.at[e]) largest.at[e] = v.at[e];
      const S change =
          now.step_size * m.at[e] / (std::sqrt(largest.at[e]) * now.root_correction + eps);
      // Weight decay as a difference: 1 - lr * weight_decay would lose precision.
      value.at[e] = value.at[e] - (now.decay * value.at[e] + change);
      param.at[e] = static_cast<T>(value.at[e]);
    }
    store(of.m, i, m);
    store(of.v, i, v);
    if (of.largest_v != nullptr) store(of.largest_v, i, largest);
    if (of.master != nullptr) store(of.master, i, value);
    store(of.param, i, param);
  }
};

template <class T>
AdamWKernel<T> adamw_kernel(const AdamW& args) {
  using S = Wide<T>;
  AdamWKernel<T> kernel{};
  kernel.beta1 = static_cast<S>(args.beta1);
  kernel.rest1 = static_cast<S>(1 - args.beta1);
  kernel.beta2 = static_cast<S>(args.beta2);
  kernel.rest2 = static_cast<S>(1 - args.beta2);
  kernel.eps = static_cast<S>(args.eps);
  const auto rates = adamw_rates(args);
  kernel.rates = {static_cast<S>(rates[0]), static_cast<S>(rates[1]), static_cast<S>(rates[2])};
  kernel.changing = args.rates;
  kernel.grad_scale = static_cast<S>(args.grad_scale);
  return kernel;
}

template <class T>
struct SgdKernel : PerElement {
  using S = Wide<T>;
  Elements<3> all;
  T* param;
  const T* grad;
  T* momentum;  // may be null
  S lr, factor, weight_decay, grad_scale, share;
  const double* changing;  // null: `lr`
  bool first, nesterov;
  CS_BODY void operator()(Block& block) const {
    const S rate = changing != nullptr ? static_cast<S>(*changing) : lr;
    each_pack<kPackOf<T>, 1>(block, all, [this, rate](const auto& places) {
      auto values = places.load(0, static_cast<const T*>(param));
      const auto grads = places.load(1, grad);
      Tile<T, kPackOf<T>> moments{};
      if (momentum != nullptr && !first) moments = places.load(2, static_cast<const T*>(momentum));
      CS_UNROLL
      for (int e = 0; e < kPackOf<T>; ++e) {
        const S old = widen(values.at[e]);
        S change = widen(grads.at[e]) * grad_scale + weight_decay * old;
        if (momentum != nullptr) {
          const S fresh = first ? change : factor * widen(moments.at[e]) + share * change;
          moments.at[e] = static_cast<T>(fresh);
          change = nesterov ? change + factor * fresh : fresh;
        }
        values.at[e] = static_cast<T>(old - rate * change);
      }
      if (momentum != nullptr) places.store(2, momentum, moments);
      places.store(0, param, values);
    });
  }
};

}  // namespace

void run(CudaDevice& device, const AdamW& args) {
  with_floating(args.dtype, [&](auto tag) {
    auto kernel = adamw_kernel<decltype(tag)>(args);
    std::int64_t blocks = 0;
    const auto send = [&] {
      launch(device, "adamw", kernel, blocks, PerElement::kMaxThreads);
      kernel.count = 0;
      blocks = 0;
    };
    constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;
    for (const AdamWTensor& of : args.tensors) {
      const std::int64_t more = (of.count + kAdamChunk - 1) / kAdamChunk;
      if (more == 0) continue;
      if (kernel.count == kAdamTensors || blocks + more > kMostBlocks) send();
      kernel.first_block[kernel.count] = static_cast<std::uint32_t>(blocks);
      kernel.tensors[kernel.count++] = of;
      blocks += more;
    }
    if (kernel.count > 0) send();
  });
}

void run(CudaDevice& device, const Sgd& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using S = Wide<T>;
    SgdKernel<T> kernel{};
    kernel.all = run_of<3>(
        args.count, kPackOf<T>,
        {Operand{args.param, sizeof(T)}, {args.grad, sizeof(T)}, {args.momentum, sizeof(T)}});
    kernel.param = as<T>(args.param);
    kernel.grad = as<T>(args.grad);
    kernel.momentum = as<T>(args.momentum);
    kernel.lr = static_cast<S>(args.lr);
    kernel.changing = args.rate;
    kernel.factor = static_cast<S>(args.momentum_factor);
    kernel.weight_decay = static_cast<S>(args.weight_decay);
    kernel.grad_scale = static_cast<S>(args.grad_scale);
    kernel.share = static_cast<S>(1 - args.dampening);
    kernel.first = args.first;
    kernel.nesterov = args.nesterov;
    launch_elements(device, "sgd", kernel, kernel.all.packs);
  });
}

}  // namespace coshard::kernels::cuda
