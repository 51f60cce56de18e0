#include <limits>

#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// in: logits, target
// out: loss (per row or summed), log of the sum of exp per row, number of targets that count (as
// loss, for `mean`)
bool summed(const Attrs& attrs) { return attrs.as<CrossEntropyAttrs>().summed; }

std::vector<TensorInfo> cross_entropy_infer(Infos in, const Attrs& attrs) {
  const Shape& logits = in[0].shape;
  require_floating("cross_entropy", in[0]);
  CS_REQUIRE(in[1].dtype == DType::I64, "cross_entropy: target must be i64, got ", in[1].dtype);
  CS_REQUIRE(!logits.empty() && in[1].shape == Shape(logits.begin(), logits.end() - 1),
             "cross_entropy: target ", in[1].shape, " does not match logits ", logits);
  const DType dtype = statistic_dtype(in[0].dtype);
  const Shape loss = summed(attrs) ? Shape() : in[1].shape;
  return {{loss, dtype}, {in[1].shape, dtype}, {loss, dtype}};
}

Rule cross_entropy_rule(Infos in, const Attrs& attrs) {
  const std::string rows = axes(in[1].shape.size());
  Rule rule;
  rule.in = {rows + ".", rows};
  rule.out = {summed(attrs) ? "" : rows, rows, summed(attrs) ? "" : rows};
  return rule;
}

void cross_entropy_forward(OpContext& c) {
  const Tensor logits = matrix_rows(c.in[0]);
  const Tensor target = local_contiguous(c.in[1]);
  const std::int64_t rows = logits.local_shape()[0];
  const std::int64_t classes = logits.local_shape()[1];
  const auto& device = logits.device();
  const DType dtype = c.out_dtype[1];
  for (int i = 0; i < 3; ++i) c.make(i);
  const Tensor sum = Tensor::empty(device, {rows}, dtype);
  const Tensor picked = Tensor::empty(device, {rows}, dtype);
  const auto a = c.attrs.as<CrossEntropyAttrs>();
  const Tensor total = a.smoothing == 0 ? Tensor() : Tensor::empty(device, {rows}, dtype);
  void* max = c.out[1].address();
  void* weighted = total.defined() ? total.address() : nullptr;
  launch(c, kernels::CrossEntropyStats{logits.dtype(), rows, classes, 0, a.ignored,
                                       logits.const_data(), target.const_data(), max, sum.address(),
                                       picked.address(), weighted});
  launch(c, kernels::CrossEntropyLoss{dtype, rows, classes, a.ignored, a.smoothing, a.summed,
                                      target.const_data(), sum.address(), picked.address(),
                                      weighted, max, c.out[0].address(), c.out[2].address()});
}

// in: dloss, logits, target, lse; out: dlogits
std::vector<TensorInfo> cross_entropy_backward_infer(Infos in, const Attrs&) { return {in[1]}; }

Rule cross_entropy_backward_rule(Infos in, const Attrs& attrs) {
  const std::string rows = axes(in[2].shape.size());
  Rule rule;
  rule.in = {summed(attrs) ? "" : rows, rows + ".", rows, rows};
  rule.out = {rows + "."};
  pass_partial(rule, "PRRR", "P", kLinear);
  return rule;
}

void cross_entropy_backward_forward(OpContext& c) {
  const Tensor logits = matrix_rows(c.in[1]);
  const Tensor target = local_contiguous(c.in[2]);
  const Tensor lse = local_contiguous(c.in[3]);
  const Shape& n = logits.local_shape();
  // exp(logits - lse) is the softmax: the sum that the kernel divides by is 1
  const Tensor one = Tensor::empty(logits.device(), {n[0]}, lse.dtype());
  const Tensor scale = Tensor::empty(logits.device(), target.local_shape(), lse.dtype());
  launch(c, kernels::Fill{one.address(), one.dtype(), n[0], 1});
  launch(c, kernels::Copy{view_of(scale), broadcast_view(c.in[0], target.local_shape())});
  const auto a = c.attrs.as<CrossEntropyAttrs>();
  launch(c, kernels::CrossEntropyGrad{logits.dtype(), n[0], n[1], 0, a.ignored, a.smoothing, n[1],
                                      logits.const_data(), target.const_data(), lse.const_data(),
                                      one.const_data(), scale.const_data(), c.make().address()});
}

const OpDef& cross_entropy_backward_op() {
  static const OpDef op{.name = "cross_entropy_backward",
                        .rule = cross_entropy_backward_rule,
                        .infer = cross_entropy_backward_infer,
                        .forward = cross_entropy_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

// (softmax - target distribution) * dloss, composed of operators. The kernel's gradient with a
// softmax of 0 (lse = inf) is the negated target distribution.
Tensor differentiable_gradient(GradContext& c) {
  const Tensor& logits = c.in[0];
  const Tensor& dloss = c.out_grad[0];
  const Tensor in[] = {full_like(dloss, 1), logits.detach(), c.in[1],
                       full_like(c.out[1], std::numeric_limits<double>::infinity())};
  const Tensor wanted = call(cross_entropy_backward_op(), in, c.attrs)[0];
  const Tensor counts = to(ne(c.in[1], c.attrs.as<CrossEntropyAttrs>().ignored), logits.dtype());
  const Tensor derivative = add(mul(softmax(logits, -1), unsqueeze(counts, -1)), wanted);
  const Tensor given = to(dloss, logits.dtype());
  return mul(derivative, summed(c.attrs) ? given : unsqueeze(given, -1));
}

void cross_entropy_backward(GradContext& c) {
  if (!c.sink.needs_grad(0) || !c.out_grad[0].defined()) return;
  if (grad_enabled()) return c.sink.accumulate(0, differentiable_gradient(c));
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1], c.out[1]};
  c.sink.accumulate(0, call(cross_entropy_backward_op(), in, c.attrs)[0]);
}

[[gnu::cold]] std::vector<OpDef::Sample> cross_entropy_samples() {
  return {{{input({5, 6}), input({5}, DType::I64)}, CrossEntropyAttrs{false, 2, 0}, -2, 2, 6},
          {{input({5, 6}), input({5}, DType::I64)}, CrossEntropyAttrs{true, -100, 0.1}, -2, 2, 6},
          {{input({2, 3, 4}), input({2, 3}, DType::I64)}, CrossEntropyAttrs{true, 3, 0}}};
}

const OpDef& cross_entropy_op() {
  static const OpDef op{.name = "cross_entropy",
                        .rule = cross_entropy_rule,
                        .infer = cross_entropy_infer,
                        .forward = cross_entropy_forward,
                        .backward = cross_entropy_backward,
                        .saves_out = 0b010,
                        .samples = cross_entropy_samples};
  return op;
}

}  // namespace

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& target, Reduction reduction,
                          std::int64_t ignore_index, double label_smoothing, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label_smoothing ",
             label_smoothing, " is not in [0, 1]");
  const Tensor in[] = {logits, target};
  const CrossEntropyAttrs attrs{.summed = reduction != Reduction::None,
                                .ignored = ignore_index,
                                .smoothing = label_smoothing};
  const auto out = call(cross_entropy_op(), in, attrs);
  const Tensor loss = reduction == Reduction::Mean ? div(out[0], out[2].detach()) : out[0];
  return to(loss, logits.dtype());
}

std::span<const OpDef* const> cross_entropy_ops() {
  static const OpDef* const ops[] = {&cross_entropy_op(), &cross_entropy_backward_op()};
  return ops;
}

}  // namespace coshard
