#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

// attrs.ints: first dimension, number of dimensions, keepdim
struct SumAttrs {
  explicit SumAttrs(const Attrs& attrs)
      : first(static_cast<std::size_t>(attrs.ints[0])),
        count(static_cast<std::size_t>(attrs.ints[1])),
        keep(attrs.ints[2] == 1) {}
  std::size_t first, count;
  bool keep;
};

Shape reduced(const Shape& shape, const SumAttrs& n) {
  Shape out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i < n.first || i >= n.first + n.count) {
      out.push_back(shape[i]);
    } else if (n.keep) {
      out.push_back(1);
    }
  }
  return out;
}

std::vector<TensorInfo> sum_infer(Infos in, const Attrs& attrs) {
  CS_REQUIRE(in[0].dtype != DType::Bool, "sum: of bool ", in[0].shape);
  return {{reduced(in[0].shape, SumAttrs(attrs)), in[0].dtype}};
}

// Cutting a dimension that is summed contracts.
Rule sum_rule(Infos in, const Attrs& attrs) {
  const SumAttrs n(attrs);
  Rule rule;
  rule.in = {letters(in[0].shape.size())};
  std::string out = rule.in[0];
  out.replace(n.first, n.count, n.keep ? std::string(n.count, '.') : std::string());
  rule.out = {out};
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void sum_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const Lines n = lines_of(x.local_shape(), static_cast<int>(c.attrs.ints[0]),
                           static_cast<int>(c.attrs.ints[1]));
  Tensor& y = c.make();
  launch(c, kernels::ReduceDim{kernels::ReduceOp::Sum, x.dtype(), n.outer, n.extent, n.inner,
                               x.data(), y.data()});
}

void sum_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  const SumAttrs n(c.attrs);
  const Shape& shape = c.in_info[0].shape;
  Shape kept = shape;
  for (std::size_t i = n.first; i < n.first + n.count; ++i) kept[i] = 1;
  const Tensor& dy = c.out_grad[0];
  c.sink.give(0, expand(n.keep || n.first == 0 ? dy : view(dy, kept), shape));
}

std::vector<OpDef::Sample> sum_samples() {
  return {{{input({3, 5})}, {{0, 2, 0}, {}}},
          {{input({2, 3, 5})}, {{1, 1, 0}, {}}},
          {{input({2, 3, 5})}, {{0, 2, 1}, {}}},
          {{input({3, 5})}, {{1, 1, 1}, {}}}};
}

const OpDef& sum_op() {
  static const OpDef op{.name = "sum",
                        .rule = sum_rule,
                        .infer = sum_infer,
                        .forward = sum_forward,
                        .backward = sum_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = sum_samples};
  return op;
}

Tensor sum_range(const Tensor& x, std::int64_t first, std::int64_t count, bool keepdim) {
  return call1(sum_op(), {x}, {{first, count, keepdim}, {}});
}

}  // namespace

Tensor sum(const Tensor& x, std::optional<int> dim, bool keepdim) {
  if (!dim) return sum_range(x, 0, x.ndim(), keepdim);
  return sum_range(x, normalize_dim(*dim, x.ndim(), "sum"), 1, keepdim);
}

Tensor mean(const Tensor& x, std::optional<int> dim, bool keepdim) {
  const std::int64_t count = dim ? x.size(normalize_dim(*dim, x.ndim(), "mean")) : x.numel();
  return mul(sum(x, dim, keepdim), 1 / static_cast<double>(count));
}

Tensor sum_to(const Tensor& gradient, const Shape& shape) {
  Tensor sums = gradient;
  const std::int64_t lead = gradient.ndim() - static_cast<std::int64_t>(shape.size());
  if (lead > 0) sums = sum_range(sums, 0, lead, false);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != sums.shape()[i]) sums = sum_range(sums, static_cast<std::int64_t>(i), 1, true);
  return sums;
}

std::span<const OpDef* const> sum_ops() {
  static const OpDef* const ops[] = {&sum_op()};
  return ops;
}

}  // namespace coshard
