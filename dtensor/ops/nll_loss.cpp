#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// in: log-probabilities, target, weight
// out: loss and weight per target
std::size_t nll_class_dim(std::size_t ndim) { return ndim == 1 ? 0 : 1; }

// Requires one class number per row of `x`; returns the shape of the rows.
Shape require_class_numbers(std::string_view who, std::string_view what, const TensorInfo& x,
                            const TensorInfo& target) {
  CS_REQUIRE(!x.shape.empty(), who, ": ", what, " need at least 1 dimension");
  CS_REQUIRE(target.dtype == DType::I64, who, ": target is ", target.dtype,
             ", not i64; convert it with to(target, DType::I64)");
  Shape rows = x.shape;
  rows.erase(nll_class_dim(rows.size()));
  CS_REQUIRE(target.shape == rows, who, ": target ", target.shape, " does not match ", what, ' ',
             x.shape, "; it is ", rows, " for those");
  return rows;
}

std::vector<TensorInfo> nll_loss_infer(Infos in, const Attrs&) {
  require_floating("nll_loss", in[0]);
  const Shape& x = in[0].shape;
  const Shape rows = require_class_numbers("nll_loss", "log-probabilities", in[0], in[1]);
  const std::size_t classes = nll_class_dim(x.size());
  if (in[2].defined) {
    require_same_dtype("nll_loss", in[0], in[2]);
    CS_REQUIRE(in[2].shape == Shape({x[classes]}), "nll_loss: weight ", in[2].shape,
               " does not match ", x[classes], " classes");
  }
  const DType dtype = statistic_dtype(in[0].dtype);
  return {{rows, dtype}, {rows, dtype}};
}

// The axes of the log-probabilities, and of the targets: the classes stay whole.
struct NllAxes {
  explicit NllAxes(std::size_t ndim) : x(axes(ndim)), rows(x) {
    x[nll_class_dim(ndim)] = '.';
    rows.erase(nll_class_dim(ndim), 1);
  }
  std::string x, rows;
};

Rule nll_loss_rule(Infos in, const Attrs&) {
  const NllAxes text(in[0].shape.size());
  Rule rule;
  rule.in = {text.x, text.rows, in[2].defined ? "." : ""};
  rule.out = {text.rows, text.rows};
  rule.strided = true;
  return rule;
}

void nll_loss_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const Tensor target = local_contiguous(c.in[1]);
  const Tensor weight = c.in[2].defined() ? local_contiguous(c.in[2]) : Tensor();
  const Shape& shape = x.local_shape();
  const Lines n = lines_of(shape, static_cast<int>(nll_class_dim(shape.size())));
  void* loss = c.make(0).address();
  void* count = c.make(1).address();
  const auto a = c.attrs.as<NllLossAttrs>();
  launch(c,
         kernels::NllLoss{x.dtype(), n.outer, n.extent, n.inner, a.ignored, a.smoothing,
                          x.const_data(), target.const_data(), data_or_null(weight), loss, count});
}

// --- gradient --- in: dloss, target, weight

struct NllLossBackwardAttrs {
  NllLossAttrs loss;
  std::int64_t classes;
  DType dtype;
};

std::vector<TensorInfo> nll_loss_backward_infer(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<NllLossBackwardAttrs>();
  Shape x = in[1].shape;
  x.insert(nll_class_dim(x.size() + 1), a.classes);
  return {{x, a.dtype}};
}

Rule nll_loss_backward_rule(Infos in, const Attrs&) {
  const NllAxes text(in[1].shape.size() + 1);
  Rule rule;
  rule.in = {text.rows, text.rows, in[2].defined ? "." : ""};
  rule.out = {text.x};
  rule.strided = true;
  pass_partial(rule, "PRR", "P", kLinear);
  return rule;
}

void nll_loss_backward_forward(OpContext& c) {
  const Tensor dloss = local_contiguous(c.in[0]);
  const Tensor target = local_contiguous(c.in[1]);
  const Tensor weight = c.in[2].defined() ? local_contiguous(c.in[2]) : Tensor();
  const Tensor& dx = c.make();
  const Shape& shape = dx.local_shape();
  const Lines n = lines_of(shape, static_cast<int>(nll_class_dim(shape.size())));
  const NllLossAttrs a = c.attrs.as<NllLossBackwardAttrs>().loss;
  launch(c, kernels::NllLossGrad{dx.dtype(), n.outer, n.extent, n.inner, a.ignored, a.smoothing,
                                 dloss.const_data(), target.const_data(), data_or_null(weight),
                                 dx.address()});
}

const OpDef& nll_loss_op();

// It is linear in dloss, and its adjoint is the loss itself, which is linear too.
void nll_loss_backward_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Tensor in[] = {c.out_grad[0], c.in[1], c.in[2]};
  c.sink.accumulate(0, call(nll_loss_op(), in, c.attrs.as<NllLossBackwardAttrs>().loss)[0]);
}

const OpDef& nll_loss_backward_op() {
  static const OpDef op{.name = "nll_loss_backward",
                        .rule = nll_loss_backward_rule,
                        .infer = nll_loss_backward_infer,
                        .forward = nll_loss_backward_forward,
                        .backward = nll_loss_backward_backward,
                        .saves_in = 0b110,
                        .saves_out = 0,
                        .samples = no_samples};
  return op;
}

void nll_loss_backward(GradContext& c) {
  if (!c.sink.needs_grad(0) || !c.out_grad[0].defined()) return;
  const TensorInfo& x = c.in_info[0];
  const NllLossBackwardAttrs attrs{.loss = c.attrs.as<NllLossAttrs>(),
                                   .classes = x.shape[nll_class_dim(x.shape.size())],
                                   .dtype = x.dtype};
  c.sink.accumulate(0, call1(nll_loss_backward_op(), {c.out_grad[0], c.in[1], c.in[2]}, attrs));
}

[[gnu::cold]] std::vector<OpDef::Sample> nll_loss_samples() {
  return {{{input({5, 4}), input({5}, DType::I64), absent()}, NllLossAttrs{-100, 0}, -3, 0, 4, {0}},
          {{input({3, 4, 2}), input({3, 2}, DType::I64), input({4})},
           NllLossAttrs{1, 0.1},
           -3,
           0,
           4,
           {0}},
          {{input({4}), input({}, DType::I64), input({4})}, NllLossAttrs{-100, 0}, -3, 0, 4, {0}}};
}

const OpDef& nll_loss_op() {
  static const OpDef op{.name = "nll_loss",
                        .rule = nll_loss_rule,
                        .infer = nll_loss_infer,
                        .forward = nll_loss_forward,
                        .backward = nll_loss_backward,
                        .saves_in = 0b110,
                        .saves_out = 0,
                        .samples = nll_loss_samples};
  return op;
}

Tensor reduced_loss(const Tensor& loss, const Tensor& count, Reduction reduction, DType dtype) {
  if (reduction == Reduction::None) return to(loss, dtype);
  const Tensor total = sum(loss);
  if (reduction == Reduction::Sum) return to(total, dtype);
  return to(div(total, sum(count.detach())), dtype);
}

Tensor smoothed_nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction,
                         std::int64_t ignore_index, double smoothing, const Tensor& weight) {
  const Tensor in[] = {log_probs, target, weight.defined() ? weight.detach() : Tensor()};
  const auto out =
      call(nll_loss_op(), in, NllLossAttrs{.ignored = ignore_index, .smoothing = smoothing});
  return reduced_loss(out[0], out[1], reduction, log_probs.dtype());
}

// The target holds class probabilities, so ignore_index does not apply.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                          std::int64_t ignore_index, double smoothing, const Tensor& weight) {
  CS_REQUIRE(logits.ndim() > 0 && target.shape() == logits.shape(), "cross_entropy: probabilities ",
             target, " do not match logits ", logits);
  CS_REQUIRE(ignore_index < 0, "cross_entropy: ignore_index ", ignore_index,
             " cannot be used with probabilities as targets");
  const auto dim = static_cast<int>(nll_class_dim(static_cast<std::size_t>(logits.ndim())));
  const std::int64_t classes = logits.size(dim);
  const Tensor log_probs = log_softmax(logits, dim);
  Tensor terms = mul(to(target, logits.dtype()), log_probs);
  if (smoothing != 0)
    terms =
        add(mul(terms, 1 - smoothing), mul(log_probs, smoothing / static_cast<double>(classes)));
  if (weight.defined()) {
    Shape along = Shape::filled(static_cast<std::size_t>(logits.ndim()), 1);
    along[static_cast<std::size_t>(dim)] = classes;
    terms = mul(terms, view(weight.detach(), along));
  }
  const Tensor losses = neg(sum(terms, dim));
  if (reduction == Reduction::None) return losses;
  if (reduction == Reduction::Sum) return sum(losses);
  return div(sum(losses), static_cast<double>(losses.numel()));
}

}  // namespace

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index, const Tensor& weight, CallSite site) {
  const OperatorCall user(site);
  return smoothed_nll_loss(log_probs, target, reduction, ignore_index, 0, weight);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                     std::int64_t ignore_index, double label_smoothing, const Tensor& weight,
                     CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label_smoothing ",
             label_smoothing, " is not in [0, 1]");
  if (is_floating(target.dtype()))
    return soft_cross_entropy(logits, target, reduction, ignore_index, label_smoothing, weight);
  if (logits.ndim() == 2 && !weight.defined())
    return cross_entropy_rows(logits, target, reduction, ignore_index, label_smoothing);
  require_class_numbers("cross_entropy", "logits", {logits.shape(), logits.dtype()},
                        {target.shape(), target.dtype()});
  const Tensor log_probs =
      log_softmax(logits, static_cast<int>(nll_class_dim(static_cast<std::size_t>(logits.ndim()))));
  return smoothed_nll_loss(log_probs, target, reduction, ignore_index, label_smoothing, weight);
}

std::span<const OpDef* const> nll_loss_ops() {
  static const OpDef* const ops[] = {&nll_loss_op(), &nll_loss_backward_op()};
  return ops;
}

}  // namespace coshard
