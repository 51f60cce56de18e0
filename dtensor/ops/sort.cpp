#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// out: values, indices. A tensor without dimensions is one line of one element.
std::vector<TensorInfo> sort_infer(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<SortAttrs>();
  Shape out = in[0].shape;
  if (!out.empty()) out[static_cast<std::size_t>(a.dim)] = a.count;
  return {{out, in[0].dtype}, {out, DType::I64}};
}

Rule sort_rule(Infos in, const Attrs& attrs) {
  const std::int64_t mask = std::int64_t{1} << attrs.as<SortAttrs>().dim;
  const std::string text = whole_axes(axes(in[0].shape.size()), mask);
  Rule rule;
  rule.in = {text};
  rule.out = {text, text};
  rule.strided = true;
  return rule;
}

void sort_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const auto a = c.attrs.as<SortAttrs>();
  const Lines n = lines_of(x.local_shape(), a.dim);
  void* values = c.make(0).address();
  void* indices = c.make(1).address();
  launch(c, kernels::Sort{a.descending, x.dtype(), n.outer, n.extent, n.inner, a.count,
                          x.const_data(), values, indices});
}

void sort_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Shape& shape = c.in_info[0].shape;
  const int dim = c.attrs.as<SortAttrs>().dim;
  c.sink.accumulate(
      0, shape.empty() ? c.out_grad[0] : scatter_add_zeros(shape, dim, c.out[1], c.out_grad[0]));
}

[[gnu::cold]] std::vector<OpDef::Sample> sort_samples() {
  return {{{input({3, 5})}, SortAttrs{1, false, 5}},
          {{input({2, 4, 3})}, SortAttrs{1, true, 4}},
          {{input({5, 3})}, SortAttrs{0, true, 2}}};
}

const OpDef& sort_op() {
  static const OpDef op{.name = "sort",
                        .rule = sort_rule,
                        .infer = sort_infer,
                        .forward = sort_forward,
                        .backward = sort_backward,
                        .saves_in = 0,
                        .saves_out = 0b10,
                        .samples = sort_samples};
  return op;
}

// The length of the lines along a dimension.
std::int64_t extent_along(const Tensor& x, int dim) { return x.ndim() == 0 ? 1 : x.size(dim); }

ValuesAndIndices first_sorted(const Tensor& x, std::int64_t k, int dim, bool descending) {
  const SortAttrs attrs{.dim = dim, .descending = descending, .count = k};
  auto out = call(sort_op(), {&x, 1}, attrs);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

ValuesAndIndices sort(const Tensor& x, int dim, bool descending, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim_or_zero(dim, x.ndim(), "sort");
  return first_sorted(x, extent_along(x, along), along, descending);
}

Tensor argsort(const Tensor& x, int dim, bool descending, CallSite site) {
  const OperatorCall user(site);
  const NoGradGuard no_gradient;
  return sort(x, dim, descending).indices;
}

ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim, bool largest, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim_or_zero(dim, x.ndim(), "topk");
  CS_REQUIRE(k >= (x.ndim() == 0 ? 1 : 0) && k <= extent_along(x, along), "topk: k ", k,
             " is out of range along dimension ", dim, " of ", x);
  return first_sorted(x, k, along, largest);
}

ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, int dim, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim_or_zero(dim, x.ndim(), "kthvalue");
  CS_REQUIRE(k >= 1 && k <= extent_along(x, along), "kthvalue: k ", k,
             " is out of range along dimension ", dim, " of ", x);
  const ValuesAndIndices first = first_sorted(x, k, along, false);
  if (x.ndim() == 0) return first;
  const Tensor value = slice(first.values, along, k - 1, k);
  const Tensor index = slice(first.indices, along, k - 1, k);
  if (keepdim) return {value, index};
  return {squeeze(value, along), squeeze(index, along)};
}

std::span<const OpDef* const> sort_ops() {
  static const OpDef* const ops[] = {&sort_op()};
  return ops;
}

}  // namespace coshard
