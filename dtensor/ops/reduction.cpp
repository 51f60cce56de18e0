#include "dtensor/ops/reduction.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

// Whether parts of a line can be reduced separately, and by which reduction they combine.
std::optional<Reduce> reduction_of_parts(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::NanSum:
    case ReduceOp::AbsPower: return Reduce::Sum;
    case ReduceOp::Max:
    case ReduceOp::AbsMax: return Reduce::Max;
    case ReduceOp::Min:
    case ReduceOp::AbsMin: return Reduce::Min;
    case ReduceOp::Product: return Reduce::Product;
    default: return std::nullopt;
  }
}

bool is_extreme(ReduceOp op) {
  return op == ReduceOp::Max || op == ReduceOp::Min || op == ReduceOp::AbsMax ||
         op == ReduceOp::AbsMin;
}

// The public function's name.
std::string_view function_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: return "sum";
    case ReduceOp::Mean: return "mean";
    case ReduceOp::Max: return "amax";
    case ReduceOp::Min: return "amin";
    case ReduceOp::Product: return "prod";
    case ReduceOp::NanSum: return "nansum";
    case ReduceOp::AbsMax:
    case ReduceOp::AbsMin:
    case ReduceOp::AbsPower: return "vector_norm";
    case ReduceOp::Variance: return "var";
    case ReduceOp::Deviation: return "stdev";
    case ReduceOp::LogSumExp: return "logsumexp";
  }
  return "reduction";
}

std::vector<TensorInfo> reduction_infer(Infos in, const Attrs& attrs) {
  const auto r = attrs.as<ReductionAttrs>();
  const bool sums = r.op == ReduceOp::Sum || r.op == ReduceOp::Product;
  const bool any_dtype = r.op == ReduceOp::Max || r.op == ReduceOp::Min;
  CS_REQUIRE(is_floating(in[0].dtype) || any_dtype || (sums && in[0].dtype != DType::Bool),
             function_of(r.op), ": ", in[0].dtype, in[0].shape,
             " is none of f32, f64, bf16 and f16");
  const Shape out = remaining(in[0].shape, r.mask, r.keepdim);
  CS_REQUIRE(!is_extreme(r.op) || in[0].dtype == DType::Bool || numel(out) == 0 ||
                 count_over(in[0].shape, r.mask) > 0,
             function_of(r.op), ": a reduced dimension of ", in[0].shape,
             " is empty, and there is no value to start from");
  return {{out, in[0].dtype}};
}

Rule reduction_rule(Infos in, const Attrs& attrs) {
  const auto r = attrs.as<ReductionAttrs>();
  const std::string all = axes(in[0].shape.size());
  const auto parts = reduction_of_parts(r.op);
  Rule rule;
  rule.in = {parts ? all : whole_axes(all, r.mask)};
  rule.out = {remaining_axes(all, r.mask, r.keepdim)};
  rule.strided = true;
  if (!parts) return rule;
  rule.contraction = *parts;
  if (r.op == ReduceOp::Sum) pass_partial(rule, "P", "P", kLinear);
  const bool passes = r.op == ReduceOp::Max || r.op == ReduceOp::Min || r.op == ReduceOp::Product;
  if (passes) rule.extra.push_back(partial_strategy("P", "P", *parts));
  return rule;
}

void reduction_forward(OpContext& c) {
  const auto r = c.attrs.as<ReductionAttrs>();
  const MaskedLines lines = masked_lines(c.in[0], r.mask);
  Tensor& y = c.make();
  launch(c, kernels::ReduceDim{r.op, lines.x.dtype(), lines.n.outer, lines.n.extent, lines.n.inner,
                               lines.x.const_data(), y.address(), r.alpha});
}

// --- gradient --- in: dy, x; out: dx

std::vector<TensorInfo> reduction_backward_infer(Infos in, const Attrs&) { return {in[1]}; }

// An element's gradient depends on the whole line, except for these two operators.
Rule reduction_backward_rule(Infos in, const Attrs& attrs) {
  const auto r = attrs.as<ReductionAttrs>();
  const bool by_element = r.op == ReduceOp::NanSum || r.op == ReduceOp::AbsPower;
  const std::string all = axes(in[1].shape.size());
  const std::string x = by_element ? all : whole_axes(all, r.mask);
  Rule rule;
  rule.in = {remaining_axes(all, r.mask, r.keepdim), x};
  rule.out = {x};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

void reduction_backward_forward(OpContext& c) {
  const auto r = c.attrs.as<ReductionAttrs>();
  const Tensor dy = local_contiguous(c.in[0]);
  const MaskedLines lines = masked_lines(c.in[1], r.mask);
  const Tensor& dx = c.make();
  const Tensor out =
      lines.moved ? Tensor::empty(dx.device(), lines.x.local_shape(), dx.dtype()) : dx;
  launch(c, kernels::ReduceGrad{r.op, dx.dtype(), lines.n.outer, lines.n.extent, lines.n.inner,
                                dy.const_data(), lines.x.const_data(), out.address(), r.alpha});
  if (lines.moved) launch(c, kernels::Copy{view_of(mask_last(dx, r.mask)), view_of(out)});
}

const OpDef& reduction_backward_op() {
  static const OpDef op{.name = "reduction_backward",
                        .rule = reduction_backward_rule,
                        .infer = reduction_backward_infer,
                        .forward = reduction_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

void reduction_backward(GradContext& c) {
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, call1(reduction_backward_op(), {c.out_grad[0], c.in[0]}, c.attrs));
}

}  // namespace

Shape remaining(const Shape& shape, std::int64_t mask, bool keep) {
  Shape out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if ((mask >> i & 1) == 0) {
      out.push_back(shape[i]);
    } else if (keep) {
      out.push_back(1);
    }
  }
  return out;
}

std::int64_t count_over(const Shape& shape, std::int64_t mask) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if ((mask >> i & 1) != 0) count *= shape[i];
  return count;
}

std::string remaining_axes(const std::string& axes, std::int64_t mask, bool keep) {
  std::string out;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if ((mask >> i & 1) == 0) {
      out += axes[i];
    } else if (keep) {
      out += '.';
    }
  }
  return out;
}

std::string whole_axes(std::string axes, std::int64_t mask) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if ((mask >> i & 1) != 0) axes[i] = '.';
  return axes;
}

Tensor mask_last(const Tensor& tensor, std::int64_t mask) {
  Shape shape;
  Strides strides;
  for (const std::int64_t masked : {0, 1}) {
    for (std::size_t i = 0; i < tensor.local_shape().size(); ++i) {
      if ((mask >> i & 1) != masked) continue;
      shape.push_back(tensor.local_shape()[i]);
      strides.push_back(tensor.strides()[i]);
    }
  }
  return tensor.view_as(shape, strides, tensor.storage_offset(), nullptr);
}

MaskedLines masked_lines(const Tensor& tensor, std::int64_t mask) {
  const Shape& shape = tensor.local_shape();
  int first = static_cast<int>(shape.size());
  int last = -1;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if ((mask >> i & 1) == 0) continue;
    first = std::min(first, i);
    last = i;
  }
  bool together = true;
  for (int i = first; i <= last; ++i)
    together = together && ((mask >> i & 1) != 0 || shape[static_cast<std::size_t>(i)] == 1);
  MaskedLines lines;
  lines.moved = !together;
  if (together) {
    lines.x = local_contiguous(tensor);
    lines.n = lines_of(shape, first, std::max(0, last - first + 1));
  } else {
    lines.x = copy_of(mask_last(tensor, mask));
    lines.n = {numel(remaining(shape, mask, false)), count_over(shape, mask), 1};
  }
  return lines;
}

OpDef reduction_op(std::string_view name, std::vector<OpDef::Sample> (*samples)(),
                   void (*backward)(GradContext&)) {
  return {.name = name,
          .rule = reduction_rule,
          .infer = reduction_infer,
          .forward = reduction_forward,
          .backward = backward ? backward : reduction_backward,
          .saves_in = backward ? 0U : 1U,
          .saves_out = 0,
          .samples = samples};
}

OpDef::Sample reduction_sample(const Shape& shape, ReduceOp op, std::int64_t mask, bool keep,
                               double alpha) {
  return {{input(shape)}, ReductionAttrs{op, mask, keep, alpha}};
}

Tensor reduce(const OpDef& op, ReduceOp kernel, const Tensor& x, const Dims& dims, bool keepdim,
              double alpha) {
  const std::int64_t mask = dims.mask(x.ndim(), op.name.data());
  return call1(op, {x}, ReductionAttrs{kernel, mask, keepdim, alpha});
}

Tensor as_sum_dtype(const Tensor& x) {
  if (is_float8(x.dtype())) fail_without_arithmetic(x.dtype());
  return is_floating(x.dtype()) ? x : to(x, DType::I64);
}

Tensor as_statistic(const Tensor& x) {
  return is_floating(x.dtype()) ? to(x, statistic_dtype(x.dtype())) : x;
}

std::span<const OpDef* const> reduction_ops() {
  static const OpDef* const ops[] = {&reduction_backward_op()};
  return ops;
}

}  // namespace coshard
