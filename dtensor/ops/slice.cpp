#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

// attrs.ints: dim, start, end; and for the gradient: size of the input along dim
std::string but_dim(const Shape& shape, const Attrs& attrs) {
  std::string text = letters(shape.size());
  text[static_cast<std::size_t>(attrs.ints[0])] = '.';
  return text;
}

std::vector<TensorInfo> slice_infer(Infos in, const Attrs& attrs) {
  Shape out = in[0].shape;
  out[static_cast<std::size_t>(attrs.ints[0])] = attrs.ints[2] - attrs.ints[1];
  return {{out, in[0].dtype}};
}

Rule slice_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  rule.in = {but_dim(in[0].shape, attrs)};
  rule.out = rule.in;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void slice_forward(OpContext& c) {
  const Tensor& x = c.in[0];
  const std::int64_t start =
      c.attrs.ints[1] * x.strides()[static_cast<std::size_t>(c.attrs.ints[0])];
  c.out[0] = x.view_as(c.out_shape[0], x.strides(), x.storage_offset() + start, nullptr);
}

std::vector<TensorInfo> slice_backward_infer(Infos in, const Attrs& attrs) {
  Shape out = in[0].shape;
  out[static_cast<std::size_t>(attrs.ints[0])] = attrs.ints[3];
  return {{out, in[0].dtype}};
}

Rule slice_backward_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  rule.in = {but_dim(in[0].shape, attrs)};
  rule.out = rule.in;
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void slice_backward_forward(OpContext& c) {
  const Tensor& dy = c.in[0];
  const Tensor& dx = c.make();
  launch(c, kernels::Fill{dx.data(), dx.dtype(), dx.local_numel(), 0});
  const std::int64_t start =
      c.attrs.ints[1] * dx.strides()[static_cast<std::size_t>(c.attrs.ints[0])];
  const Tensor part = dx.view_as(dy.local_shape(), dx.strides(), start, nullptr);
  launch(c, kernels::Copy{view_of(part), view_of(dy)});
}

const OpDef& slice_backward_op() {
  static const OpDef op{.name = "slice_backward",
                        .rule = slice_backward_rule,
                        .infer = slice_backward_infer,
                        .forward = slice_backward_forward,
                        .backward = nullptr,
                        .flops = no_flops,
                        .samples = no_samples};
  return op;
}

void slice_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  Attrs attrs = c.attrs;
  attrs.ints.push_back(c.in_info[0].shape[static_cast<std::size_t>(attrs.ints[0])]);
  c.sink.give(0, call1(slice_backward_op(), {c.out_grad[0]}, attrs));
}

std::vector<OpDef::Sample> slice_samples() {
  return {{{input({5, 3})}, {{0, 1, 4}, {}}}, {{input({2, 3, 6})}, {{2, 0, 3}, {}}}};
}

const OpDef& slice_op() {
  static const OpDef op{.name = "slice",
                        .rule = slice_rule,
                        .infer = slice_infer,
                        .forward = slice_forward,
                        .backward = slice_backward,
                        .flops = no_flops,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = slice_samples};
  return op;
}

}  // namespace

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end) {
  const int along = normalize_dim(dim, x.ndim(), "slice");
  const std::int64_t size = x.size(along);
  const std::int64_t from = start < 0 ? start + size : start;
  const std::int64_t to = end < 0 ? end + size : end;
  CS_REQUIRE(0 <= from && from <= to && to <= size, "slice: [", start, ", ", end,
             ") along dimension ", dim, " of ", x);
  if (from == 0 && to == size) return x;
  return call1(slice_op(), {x}, {{along, from, to}, {}});
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim) {
  CS_REQUIRE(size > 0, "split: pieces of ", size, " of ", x);
  const std::int64_t extent = x.size(normalize_dim(dim, x.ndim(), "split"));
  std::vector<Tensor> pieces;
  for (std::int64_t start = 0; start < extent || start == 0; start += size)
    pieces.push_back(slice(x, dim, start, std::min(start + size, extent)));
  return pieces;
}

std::span<const OpDef* const> slice_ops() {
  static const OpDef* const ops[] = {&slice_op(), &slice_backward_op()};
  return ops;
}

}  // namespace coshard
