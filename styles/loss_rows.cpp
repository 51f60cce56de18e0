#include "styles/loss_rows.h"

#include <limits>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/ops/local.h"
#include "dtensor/tape/grad_mode.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// Runs a kernel and tells the observers how long it took.
template <class Args>
void run_loss_kernel(const LossRows& p, const Args& args) {
  Device& device = *p.logits.device();
  World* world = World::current();
  if (world == nullptr || !world->observed()) return kernels::run(device, args);
  const Computing told(world->observer(), device, "loss_parallel", ComputeClass::Other,
                       [&p] { return str_cat(p.logits.dtype(), p.logits.local_shape()); });
  kernels::run(device, args);
}

Tensor as_matrix(const LossRows& p, const Tensor& x) {
  return x.view_as(Shape{p.rows, p.classes}, row_major(Shape{p.rows, p.classes}),
                   x.storage_offset(), nullptr);
}

Tensor times(const Tensor& x, const Tensor& factor) {
  return factor.defined() ? mul(x, factor) : x;
}

Tensor times_weight_sum(const LossRows& p, const Tensor& x) {
  return p.weight_sum.defined() ? mul(x, p.weight_sum) : mul(x, static_cast<double>(p.all_classes));
}

// sum of weight[c] * logit[c] over this rank's classes: [rows]
Tensor weighted_total(const LossRows& p) {
  const Tensor logits = to(as_matrix(p, p.logits), p.statistic());
  return view(matmul(logits, view(p.weight, Shape{p.classes, 1})), Shape{p.rows});
}

kernels::CrossEntropyGrad grad_args(const LossRows& p, const Tensor& targets, double smoothing,
                                    const Tensor& statistics, const Tensor& scale,
                                    const Tensor& out) {
  const Tensor max = select(statistics, 0, 0), sum = select(statistics, 0, 1);
  return {p.logits.dtype(),       p.rows,           p.classes,        p.first,
          p.options.ignore_index, smoothing,        p.all_classes,    p.logits.const_data(),
          targets.const_data(),   max.const_data(), sum.const_data(), scale.const_data(),
          out.address()};
}

// With class weights w and smoothing e a row's gradient is
//   (1-e) w[target] (softmax - hit) + e/C (W softmax - w):
// two calls of the kernel, and an outer product.
Tensor weighted_smooth_gradient(const LossRows& p, const Tensor& given, const Tensor& statistics) {
  const double smoothing = p.options.label_smoothing;
  const Tensor per_class = mul(given, smoothing / static_cast<double>(p.all_classes));
  const Tensor counted = mul(to(p.counted, p.statistic()), per_class);
  const Tensor hit = mul(mul(p.target_weight, given), 1 - smoothing);
  const auto& device = p.logits.device();
  const Tensor first = Tensor::empty(device, p.logits.local_shape(), p.logits.dtype());
  const Tensor second = Tensor::empty(device, p.logits.local_shape(), p.logits.dtype());
  run_loss_kernel(p, grad_args(p, p.targets, 0, statistics, hit, first));
  // not a class, so that no logit is the target
  const Tensor nowhere =
      full(device, Shape{p.rows}, static_cast<double>(p.all_classes), DType::I64);
  const Tensor everywhere = times_weight_sum(p, counted);
  run_loss_kernel(p, grad_args(p, nowhere, 0, statistics, everywhere, second));
  const Tensor outer =
      matmul(view(neg(counted), Shape{p.rows, 1}), view(p.weight, Shape{1, p.classes}));
  const Tensor sums = add(as_matrix(p, first), as_matrix(p, second));
  const Tensor matrix = add(sums, to(outer, p.logits.dtype()));
  return view(matrix, p.logits.local_shape());
}

}  // namespace

void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index) {
  kernels::run(*targets.device(),
               kernels::CheckIndex{DeviceAssertKind::Target, DType::I64, targets.local_numel(),
                                   classes, targets.const_data(), ignore_index});
}

void weigh_rows(LossRows& p, const Tensor& weight) {
  const NoGradGuard no_grad;
  const Tensor targets = view(p.targets, Shape{p.rows});
  p.counted = ne(targets, p.options.ignore_index);
  const Tensor ones = to(p.counted, p.statistic());
  p.target_weight = ones;
  if (!weight.defined()) return;
  CS_REQUIRE(weight.shape() == Shape{p.all_classes}, "loss_parallel: weight ", weight,
             " does not match ", p.all_classes, " classes");
  const Tensor whole = to(weight.raw_local(), p.statistic());
  p.weight = contiguous(slice(whole, 0, p.first, p.first + p.classes));
  p.weight_sum = sum(whole, Dims{0}, true);
  const Tensor classes = mul(targets, to(p.counted, DType::I64));  // an ignored one: class 0
  p.target_weight = mul(gather(whole, 0, classes), ones);
}

Tensor batch_weight(const LossRows& p) {
  const NoGradGuard no_grad;
  return sum(to(p.target_weight, DType::F64), Dims{0}, true);
}

Tensor row_statistics(const LossRows& p, int own, int slots) {
  const Shape shape{slots, p.statistics(), p.rows};
  const auto& device = p.logits.device();
  const Tensor all = slots == 1 ? Tensor::empty(device, shape, p.statistic())
                                : zeros(device, shape, p.statistic());
  const auto row = [&](std::int64_t kind) {
    return all.view_as(Shape{p.rows}, row_major(Shape{p.rows}),
                       (own * p.statistics() + kind) * p.rows, nullptr);
  };
  const bool weighted = p.smooth() && p.weight.defined();
  run_loss_kernel(
      p, kernels::CrossEntropyStats{
             p.logits.dtype(), p.rows, p.classes, p.first, p.options.ignore_index,
             p.logits.const_data(), p.targets.const_data(), row(0).address(), row(1).address(),
             row(2).address(), p.smooth() && !weighted ? row(3).address() : nullptr});
  if (!weighted) return all;
  const NoGradGuard no_grad;
  const Tensor total = weighted_total(p);
  run_loss_kernel(p, kernels::Copy{view_of(row(3)), view_of(total)});
  return all;
}

Tensor joined_statistics(const LossRows& p, const Tensor& slots) {
  const Shape shape{p.statistics(), p.rows};
  if (slots.local_shape()[0] == 1) return view(slots, shape);
  const Tensor joined = Tensor::empty(p.logits.device(), shape, p.statistic());
  run_loss_kernel(
      p, kernels::CrossEntropyJoin{p.statistic(), slots.local_shape()[0], p.statistics(), p.rows,
                                   slots.const_data(), joined.address()});
  return joined;
}

Tensor row_losses(const LossRows& p, const Tensor& statistics) {
  const NoGradGuard no_grad;
  const double smoothing = p.options.label_smoothing;
  const Tensor max = select(statistics, 0, 0), log_sum = log(select(statistics, 0, 1));
  Tensor loss = mul(p.target_weight, sub(log_sum, sub(select(statistics, 0, 2), max)));
  if (p.smooth()) {
    const Tensor total = sub(select(statistics, 0, 3), times_weight_sum(p, max));
    const Tensor everywhere = sub(times_weight_sum(p, log_sum), total);
    loss =
        add(mul(loss, 1 - smoothing), everywhere, smoothing / static_cast<double>(p.all_classes));
  }
  // An ignored row may contain infinities.
  return times(masked_fill(loss, logical_not(p.counted), 0.0), p.scale);
}

Tensor wanted_sums(const LossRows& p) {
  const NoGradGuard no_grad;
  if (!p.smooth() || !p.weight.defined()) return times(p.target_weight, p.scale);
  const double smoothing = p.options.label_smoothing;
  const Tensor everywhere = times_weight_sum(p, to(p.counted, p.statistic()));
  return times(add(mul(p.target_weight, 1 - smoothing), everywhere,
                   smoothing / static_cast<double>(p.all_classes)),
               p.scale);
}

// The gradient with a softmax of 0, by an infinite sum.
Tensor negative_wanted(const LossRows& p, const Tensor& statistics) {
  const NoGradGuard no_grad;
  const Tensor none = copy_of(statistics);
  fill_(select(none, 0, 1), std::numeric_limits<double>::infinity());
  return rows_gradient(p, ones(p.logits.device(), Shape{1}, p.statistic()), none);
}

Tensor rows_gradient(const LossRows& p, const Tensor& given, const Tensor& statistics) {
  const NoGradGuard no_grad;
  const Tensor scaled = times(to(given, p.statistic()), p.scale);
  if (p.smooth() && p.weight.defined()) return weighted_smooth_gradient(p, scaled, statistics);
  const Tensor scales = contiguous(mul(p.target_weight, scaled));
  const Tensor out = Tensor::empty(p.logits.device(), p.logits.local_shape(), p.logits.dtype());
  run_loss_kernel(p, grad_args(p, p.targets, p.options.label_smoothing, statistics, scales, out));
  return out;
}

}  // namespace coshard
