#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

struct DiagonalZerosAttrs {
  DiagonalAttrs diagonal;
  std::int64_t size1, size2;  // of the result along dim1 and dim2
};

struct Diagonal {
  explicit Diagonal(const DiagonalAttrs& attrs)
      : offset(attrs.offset),
        dim1(static_cast<std::size_t>(attrs.dim1)),
        dim2(static_cast<std::size_t>(attrs.dim2)) {}
  std::int64_t offset;
  std::size_t dim1, dim2;

  std::int64_t length(const Shape& shape) const {
    const std::int64_t rows = shape[dim1] + std::min<std::int64_t>(offset, 0);
    const std::int64_t columns = shape[dim2] - std::max<std::int64_t>(offset, 0);
    return std::max<std::int64_t>(0, std::min(rows, columns));
  }
  // Sizes, strides or axes without the two dimensions, and with the diagonal's at the end.
  template <class Sequence, class Value>
  Sequence without(const Sequence& values, Value last) const {
    Sequence out;
    for (std::size_t d = 0; d < values.size(); ++d)
      if (d != dim1 && d != dim2) out.push_back(values[d]);
    out.push_back(last);
    return out;
  }
  // The diagonal of a local tensor that is unsharded in both dimensions.
  Tensor of(const Tensor& x) const {
    const Strides& s = x.strides();
    const std::int64_t count = length(x.local_shape());
    const std::int64_t start = offset < 0 ? -offset * s[dim1] : offset * s[dim2];
    return x.view_as(without(x.local_shape(), count), without(s, s[dim1] + s[dim2]),
                     x.storage_offset() + (count > 0 ? start : 0), nullptr);
  }
  Shape with_both(const Shape& shape, std::int64_t size1, std::int64_t size2) const {
    Shape out = shape;
    out.pop_back();
    const bool first = dim1 < dim2;
    out.insert(first ? dim1 : dim2, first ? size1 : size2);
    out.insert(first ? dim2 : dim1, first ? size2 : size1);
    return out;
  }
};

std::vector<TensorInfo> diagonal_infer(Infos in, const Attrs& attrs) {
  const Diagonal d(attrs.as<DiagonalAttrs>());
  return {{d.without(in[0].shape, d.length(in[0].shape)), in[0].dtype}};
}

Rule diagonal_rule(Infos in, const Attrs& attrs) {
  const Diagonal d(attrs.as<DiagonalAttrs>());
  std::string text = axes(in[0].shape.size());
  text[d.dim1] = text[d.dim2] = '.';
  Rule rule;
  rule.in = {text};
  rule.out = {d.without(text, '.')};
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void diagonal_forward(OpContext& c) {
  c.out[0] = Diagonal(c.attrs.as<DiagonalAttrs>()).of(c.in[0]);
}

// --- its adjoint: zeros with the input on the diagonal ---

std::vector<TensorInfo> diagonal_zeros_infer(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<DiagonalZerosAttrs>();
  return {{Diagonal(a.diagonal).with_both(in[0].shape, a.size1, a.size2), in[0].dtype}};
}

Rule diagonal_zeros_rule(Infos in, const Attrs& attrs) {
  const Diagonal d(attrs.as<DiagonalZerosAttrs>().diagonal);
  std::string text = axes(in[0].shape.size() + 1);
  text[d.dim1] = text[d.dim2] = '.';
  Rule rule;
  rule.in = {d.without(text, '.')};
  rule.out = {text};
  rule.strided = true;
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void diagonal_zeros_forward(OpContext& c) {
  const Tensor& y = c.make();
  const Diagonal d(c.attrs.as<DiagonalZerosAttrs>().diagonal);
  launch(c, kernels::Fill{y.address(), y.dtype(), y.local_numel(), 0});
  launch(c, kernels::Copy{view_of(d.of(y)), view_of(c.in[0])});
}

void diagonal_zeros_backward(GradContext& c) {
  const DiagonalAttrs d = c.attrs.as<DiagonalZerosAttrs>().diagonal;
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, diagonal(c.out_grad[0], d.offset, d.dim1, d.dim2));
}

[[gnu::cold]] std::vector<OpDef::Sample> diagonal_zeros_samples() {
  return {{{input({2, 3})}, DiagonalZerosAttrs{{1, 1, 2}, 3, 5}}};
}

const OpDef& diagonal_zeros_op() {
  static const OpDef op{.name = "diagonal_zeros",
                        .rule = diagonal_zeros_rule,
                        .infer = diagonal_zeros_infer,
                        .forward = diagonal_zeros_forward,
                        .backward = diagonal_zeros_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = diagonal_zeros_samples};
  return op;
}

void diagonal_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const auto diagonal = c.attrs.as<DiagonalAttrs>();
  const Diagonal d(diagonal);
  const Shape& shape = c.in_info[0].shape;
  const DiagonalZerosAttrs attrs{diagonal, shape[d.dim1], shape[d.dim2]};
  c.sink.accumulate(0, call1(diagonal_zeros_op(), {c.out_grad[0]}, attrs));
}

[[gnu::cold]] std::vector<OpDef::Sample> diagonal_samples() {
  return {{{input({4, 5})}, DiagonalAttrs{0, 0, 1}},
          {{input({5, 3, 4})}, DiagonalAttrs{-1, 2, 0}},
          {{input({3, 2, 4})}, DiagonalAttrs{2, 0, 2}}};
}

const OpDef& diagonal_op() {
  static const OpDef op{.name = "diagonal",
                        .rule = diagonal_rule,
                        .infer = diagonal_infer,
                        .forward = diagonal_forward,
                        .backward = diagonal_backward,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = diagonal_samples};
  return op;
}

}  // namespace

Tensor diagonal(const Tensor& x, std::int64_t offset, int dim1, int dim2, CallSite site) {
  const OperatorCall user(site);
  const int first = normalize_dim(dim1, x.ndim(), "diagonal");
  const int second = normalize_dim(dim2, x.ndim(), "diagonal");
  CS_REQUIRE(first != second, "diagonal: dimensions ", dim1, " and ", dim2, " of ", x,
             " must differ");
  // Beyond the corners all diagonals are empty.
  const std::int64_t within = std::clamp(offset, -x.size(first), x.size(second));
  return call1(diagonal_op(), {x}, DiagonalAttrs{.offset = within, .dim1 = first, .dim2 = second});
}

std::span<const OpDef* const> diagonal_ops() {
  static const OpDef* const ops[] = {&diagonal_op(), &diagonal_zeros_op()};
  return ops;
}

}  // namespace coshard
