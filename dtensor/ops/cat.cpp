#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tensor/promotion.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> cat_infer(Infos in, const Attrs& attrs) {
  const auto dim = static_cast<std::size_t>(attrs.as<CatAttrs>().dim);
  Shape out = in[0].shape;
  for (const TensorInfo& x : in.subspan(1)) {
    require_same_dtype("cat", in[0], x);
    Shape expected = x.shape;
    if (dim < expected.size()) expected[dim] = in[0].shape[dim];
    CS_REQUIRE(expected == in[0].shape, "cat: shapes ", in[0].shape, " and ", x.shape,
               " differ outside dimension ", dim);
    out[dim] += x.shape[dim];
  }
  return {{out, in[0].dtype}};
}

Rule cat_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  std::string text = axes(in[0].shape.size());
  text[static_cast<std::size_t>(attrs.as<CatAttrs>().dim)] = '.';
  rule.in.assign(in.size(), text);
  rule.out = {text};
  rule.strided = true;
  pass_partial(rule, std::string(in.size(), 'P'), "P", kMoving);
  return rule;
}

void cat_forward(OpContext& c) {
  const auto dim = static_cast<std::size_t>(c.attrs.as<CatAttrs>().dim);
  const Tensor& out = c.make();
  std::int64_t start = 0;
  for (const Tensor& x : c.in) {
    const Tensor part =
        out.view_as(x.local_shape(), out.strides(), start * out.strides()[dim], nullptr);
    launch(c, kernels::Copy{view_of(part), view_of(x)});
    start += x.local_shape()[dim];
  }
}

void cat_backward(GradContext& c) {
  const int dim = c.attrs.as<CatAttrs>().dim;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < c.in_info.size(); ++i) {
    const std::int64_t end = start + c.in_info[i].shape[static_cast<std::size_t>(dim)];
    const auto input = static_cast<int>(i);
    if (c.sink.needs_grad(input)) c.sink.accumulate(input, slice(c.out_grad[0], dim, start, end));
    start = end;
  }
}

[[gnu::cold]] std::vector<OpDef::Sample> cat_samples() {
  return {{{input({3, 5}), input({2, 5})}, CatAttrs{0}},
          {{input({2, 3, 4}), input({2, 1, 4}), input({2, 2, 4})}, CatAttrs{1}}};
}

const OpDef& cat_op() {
  static const OpDef op{.name = "cat",
                        .rule = cat_rule,
                        .infer = cat_infer,
                        .forward = cat_forward,
                        .backward = cat_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = cat_samples};
  return op;
}

}  // namespace

Tensor cat(std::span<const Tensor> parts, int dim, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(!parts.empty(), "cat: the list of tensors is empty");
  const CatAttrs attrs{normalize_dim(dim, parts[0].ndim(), "cat")};
  DType dtype = parts[0].dtype();
  for (const Tensor& x : parts) dtype = promoted(dtype, x.dtype());
  std::vector<Tensor> same;
  for (const Tensor& x : parts) same.push_back(to(x, dtype));
  return call(cat_op(), same, attrs)[0];
}

Tensor stack(const TensorList& list, int dim, CallSite site) {
  const OperatorCall user(site);
  const std::span<const Tensor> parts = list;
  CS_REQUIRE(!parts.empty(), "stack: the list of tensors is empty");
  std::vector<Tensor> rows;
  for (const Tensor& x : parts) {
    CS_REQUIRE(x.shape() == parts[0].shape(), "stack: shapes differ: ", parts[0], " and ", x);
    rows.push_back(unsqueeze(x, dim));
  }
  return cat(rows, dim);
}

Tensor roll(const Tensor& x, std::int64_t shift, int dim, CallSite site) {
  const OperatorCall user(site);
  const std::int64_t size = x.size(normalize_dim(dim, x.ndim(), "roll"));
  const std::int64_t start = size == 0 ? 0 : (size - shift % size) % size;
  if (start == 0) return clone(x);
  const Tensor whole = whole_along(x, dim);
  return cat({slice(whole, dim, start, size), slice(whole, dim, 0, start)}, dim);
}

std::span<const OpDef* const> cat_ops() {
  static const OpDef* const ops[] = {&cat_op()};
  return ops;
}

}  // namespace coshard
