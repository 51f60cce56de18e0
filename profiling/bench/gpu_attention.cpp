// Attention alone, in the shape of the block: a causal sequence forward and backward, and one step
// of decoding.
#include <algorithm>
#include <cmath>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include "kernels/run.h"
#include "profiling/bench/gpu_cases.h"

namespace coshard::bench {
namespace {

constexpr std::int64_t kDecoded = 8;  // sequences of a step

kernels::View heads_of(const Tensor& tensor) {
  kernels::View view{tensor.data(), tensor.dtype(), tensor.ndim()};
  std::copy(tensor.shape().begin(), tensor.shape().end(), view.shape.begin());
  std::copy(tensor.strides().begin(), tensor.strides().end(), view.strides.begin());
  return view;
}

struct AttentionCase {
  Tensor q, k, v, out, lse;
  kernels::Attention args;

  AttentionCase(const std::shared_ptr<Device>& device, const GpuSizes& s, std::int64_t batch,
                std::int64_t queries)
      : q(randn(device, Shape{batch, s.heads, queries, s.hidden / s.heads}, DType::BF16)),
        k(randn(device, Shape{batch, s.kv_heads, s.tokens, s.hidden / s.heads}, DType::BF16)),
        v(randn(device, k.shape(), DType::BF16)),
        out(Tensor::empty(device, q.shape(), DType::BF16)),
        lse(Tensor::empty(device, Shape{batch, s.heads, queries}, DType::F32)),
        args{heads_of(out), heads_of(q),
             heads_of(k),   heads_of(v),
             lse.data(),    1 / std::sqrt(static_cast<double>(s.hidden / s.heads)),
             true,          s.tokens - queries} {}
};

// `work`: the rate in `unit` of a call that takes one microsecond.
void add_rate(GpuResults& results, const char* name, double work, const RobustStats& us,
              const char* unit) {
  const RobustStats stats = {work / us.median, work / us.max, work / us.min, 0, us.count};
  results.push_back(measured(name, stats, unit, std::nullopt, true));
}

}  // namespace

Task<void> measure_attention(World& world, const GpuSizes& sizes, GpuResults& results) {
  const NoGradGuard no_grad;
  Device& device = *world.device();
  const double head = static_cast<double>(sizes.hidden) / static_cast<double>(sizes.heads);
  const double tokens = static_cast<double>(sizes.tokens);
  const AttentionCase whole(world.device(), sizes, 1, sizes.tokens);
  const auto forward = [&] { kernels::run(device, whole.args); };
  // Two matmuls forward and five backward, over the lower triangle.
  const double product = tokens * tokens * static_cast<double>(sizes.hidden);
  add_rate(results, "attention_forward", 2 * product / 1e6,
           timed_on_device(device, forward, sizes.steps), "TFLOP/s");
  const Tensor dout = randn(world.device(), whole.q.shape(), DType::BF16);
  const Tensor dq = Tensor::empty(world.device(), whole.q.shape(), DType::BF16);
  const Tensor dk = Tensor::empty(world.device(), whole.k.shape(), DType::BF16);
  const Tensor dv = Tensor::empty(world.device(), whole.v.shape(), DType::BF16);
  const kernels::Attention& a = whole.args;
  const kernels::AttentionGrad gradient{heads_of(dq), heads_of(dk), heads_of(dv), heads_of(dout),
                                        a.out,        a.q,          a.k,          a.v,
                                        a.lse,        a.scale,      a.causal,     a.diagonal};
  const auto backward = [&] { kernels::run(device, gradient); };
  add_rate(results, "attention_backward", 5 * product / 1e6,
           timed_on_device(device, backward, sizes.steps), "TFLOP/s");
  // A step of decoding reads every key and value once.
  const AttentionCase step(world.device(), sizes, kDecoded, 1);
  const auto decode = [&] { kernels::run(device, step.args); };
  const double moved = 4 * static_cast<double>(kDecoded * sizes.kv_heads) * tokens * head;
  add_rate(results, "attention_decode", moved / 1e3, timed_on_device(device, decode, sizes.steps),
           "GB/s");
  co_return;
}

}  // namespace coshard::bench
