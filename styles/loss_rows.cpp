#include "styles/loss_rows.h"

#include <cmath>

#include "dtensor/ops/local.h"
#include "dtensor/random.h"
#include "dtensor/tape.h"
#include "kernels/run.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

// Runs a kernel and tells the observers how long it took.
template <class Args>
void run_loss_kernel(const LossRows& p, const Args& args) {
  Device& device = *p.logits.device();
  World* world = World::current();
  if (world == nullptr || !world->observed()) return kernels::run(device, args);
  const std::int64_t begin = now_ns();
  kernels::run(device, args);
  world->observer().computed("loss_parallel", ComputeClass::Other, begin, now_ns());
}

Tensor as_matrix(const LossRows& p, const Tensor& x) {
  return x.view_as(Shape{p.rows, p.classes}, row_major(Shape{p.rows, p.classes}),
                   x.storage_offset(), nullptr);
}

Tensor row_vector(const LossRows& p, const std::vector<double>& values) {
  return Tensor::from_values(p.logits.device(), Shape{p.rows}, p.statistic(), values);
}

// sum of weight[c] * (logit[c] - max) over this rank's classes: [rows]
Tensor weighted_total(const LossRows& p, const Tensor& max) {
  const Tensor logits = to(as_matrix(p, p.logits), p.statistic());
  const Tensor sums = view(matmul(logits, view(p.weight, Shape{p.classes, 1})), Shape{p.rows});
  return add(sums, mul(view(max, Shape{p.rows}), -p.own_weight_sum));
}

kernels::CrossEntropyGrad grad_args(const LossRows& p, const Tensor& targets, double smoothing,
                                    const Tensor& max, const Tensor& sum, const Tensor& scale,
                                    const Tensor& out) {
  return {p.logits.dtype(), p.rows,        p.classes,       p.first,        p.options.ignore_index,
          smoothing,        p.all_classes, p.logits.data(), targets.data(), max.data(),
          sum.data(),       scale.data(),  out.data()};
}

// With class weights w and smoothing e a row's gradient is
//   (1-e) w[target] (softmax - hit) + e/C (W softmax - w):
// the kernel's form twice, and an outer product.
Tensor weighted_smooth_gradient(const LossRows& p, const std::vector<double>& given,
                                const Tensor& max, const Tensor& sum) {
  const double smoothing = p.options.label_smoothing;
  std::vector<double> hit(given.size()), everywhere(given.size()), minus(given.size());
  for (std::size_t r = 0; r < given.size(); ++r) {
    const double part = p.counted[r] * p.scale * given[r] * smoothing;
    hit[r] = (1 - smoothing) * p.target_weight[r] * p.scale * given[r];
    everywhere[r] = part * p.weight_sum / static_cast<double>(p.all_classes);
    minus[r] = -part / static_cast<double>(p.all_classes);
  }
  const auto& device = p.logits.device();
  const Tensor first = Tensor::empty(device, p.logits.local_shape(), p.logits.dtype());
  const Tensor second = Tensor::empty(device, p.logits.local_shape(), p.logits.dtype());
  run_loss_kernel(p, grad_args(p, p.targets, 0, max, sum, row_vector(p, hit), first));
  // a target that no class has: nothing is hit
  const Tensor nowhere =
      full(device, Shape{p.rows}, static_cast<double>(p.all_classes), DType::I64);
  run_loss_kernel(p, grad_args(p, nowhere, 0, max, sum, row_vector(p, everywhere), second));
  const Tensor outer =
      matmul(view(row_vector(p, minus), Shape{p.rows, 1}), view(p.weight, Shape{1, p.classes}));
  const Tensor sums = add(as_matrix(p, first), as_matrix(p, second));
  const Tensor matrix = add(sums, to(outer, p.logits.dtype()));
  return view(matrix, p.logits.local_shape());
}

}  // namespace

void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index) {
  const auto* target = targets.data_as<std::int64_t>();
  for (std::int64_t r = 0; r < targets.local_numel(); ++r)
    CS_REQUIRE(target[r] == ignore_index || (target[r] >= 0 && target[r] < classes),
               "loss_parallel: target ", target[r], " at ", r, " is outside of ", classes,
               " classes");
}

void weigh_rows(LossRows& p, const Tensor& weight) {
  p.weight_sum = static_cast<double>(p.all_classes);
  std::vector<double> weights;
  if (weight.defined()) {
    CS_REQUIRE(weight.shape() == Shape{p.all_classes}, "loss_parallel: weight ", weight, " for ",
               p.all_classes, " classes");
    const Tensor whole = weight.raw_local();
    weights = whole.to_vector();
    const NoGradGuard no_grad;
    p.weight = contiguous(to(slice(whole, 0, p.first, p.first + p.classes), p.statistic()));
    p.weight_sum = 0;
    for (const double w : weights) p.weight_sum += w;
    for (std::int64_t c = 0; c < p.classes; ++c)
      p.own_weight_sum += weights[static_cast<std::size_t>(p.first + c)];
  }
  const auto* target = p.targets.data_as<std::int64_t>();
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::int64_t c = target[r];
    const bool ignored = c == p.options.ignore_index;
    p.counted.push_back(ignored ? 0 : 1);
    p.target_weight.push_back(ignored           ? 0
                              : weights.empty() ? 1
                                                : weights[static_cast<std::size_t>(c)]);
  }
}

double batch_weight(const LossRows& p) {
  double sum = 0;
  for (const double w : p.target_weight) sum += w;
  return sum;
}

Tensor row_max(const LossRows& p) {
  const Tensor max = Tensor::empty(p.logits.device(), Shape{1, p.rows}, p.statistic());
  run_loss_kernel(
      p, kernels::RowMax{p.logits.dtype(), p.rows, p.classes, p.logits.data(), max.data()});
  return max;
}

Tensor row_statistics(const LossRows& p, const Tensor& max) {
  const Tensor own =
      Tensor::empty(p.logits.device(), Shape{p.smooth() ? 3 : 2, p.rows}, p.statistic());
  char* at = static_cast<char*>(own.data());
  const std::int64_t row_bytes = p.rows * static_cast<std::int64_t>(size_of(p.statistic()));
  run_loss_kernel(p, kernels::CrossEntropyStats{p.logits.dtype(), p.rows, p.classes, p.first,
                                                p.options.ignore_index, p.logits.data(),
                                                p.targets.data(), max.data(), at, at + row_bytes,
                                                p.smooth() ? at + 2 * row_bytes : nullptr});
  if (!p.smooth() || !p.weight.defined()) return own;
  const NoGradGuard no_grad;
  const Tensor total = weighted_total(p, max);
  const Tensor third = own.view_as(Shape{p.rows}, row_major(Shape{p.rows}), 2 * p.rows, nullptr);
  run_loss_kernel(p, kernels::Copy{view_of(third), view_of(total)});
  return own;
}

std::vector<double> row_losses(const LossRows& p, const Tensor& statistics) {
  const std::vector<double> values = statistics.to_vector();
  const auto rows = static_cast<std::size_t>(p.rows);
  const double smoothing = p.options.label_smoothing;
  std::vector<double> losses(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    if (p.counted[r] == 0) continue;
    const double log_sum = std::log(values[r]);
    losses[r] = (1 - smoothing) * p.target_weight[r] * (log_sum - values[rows + r]);
    if (p.smooth())
      losses[r] += smoothing * (p.weight_sum * log_sum - values[2 * rows + r]) /
                   static_cast<double>(p.all_classes);
    losses[r] *= p.scale;
  }
  return losses;
}

Tensor rows_gradient(const LossRows& p, const std::vector<double>& given, const Tensor& max,
                     const Tensor& sum) {
  if (p.smooth() && p.weight.defined()) return weighted_smooth_gradient(p, given, max, sum);
  std::vector<double> scales = p.target_weight;
  for (std::size_t r = 0; r < scales.size(); ++r) scales[r] *= p.scale * given[r];
  const Tensor out = Tensor::empty(p.logits.device(), p.logits.local_shape(), p.logits.dtype());
  run_loss_kernel(
      p, grad_args(p, p.targets, p.options.label_smoothing, max, sum, row_vector(p, scales), out));
  return out;
}

}  // namespace coshard
