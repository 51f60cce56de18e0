#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

template <class Sequence>
Sequence permuted(const Sequence& values, const Shape& dims) {
  Sequence out = values;
  for (std::size_t i = 0; i < dims.size(); ++i) out[i] = values[static_cast<std::size_t>(dims[i])];
  return out;
}

std::vector<TensorInfo> permute_infer(Infos in, const Attrs& attrs) {
  return {{permuted(in[0].shape, attrs.as<PermuteAttrs>().dims), in[0].dtype}};
}

Rule permute_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  rule.in = {axes(in[0].shape.size())};
  rule.out = {permuted(rule.in[0], attrs.as<PermuteAttrs>().dims)};
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void permute_forward(OpContext& c) {
  const Tensor& x = c.in[0];
  const Shape dims = c.attrs.as<PermuteAttrs>().dims;
  c.out[0] = x.view_as(permuted(x.local_shape(), dims), permuted(x.strides(), dims),
                       x.storage_offset(), nullptr);
}

void permute_backward(GradContext& c) {
  const Shape dims = c.attrs.as<PermuteAttrs>().dims;
  Shape inverse = dims;
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[static_cast<std::size_t>(dims[i])] = static_cast<std::int64_t>(i);
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, permute(c.out_grad[0], inverse));
}

[[gnu::cold]] std::vector<OpDef::Sample> permute_samples() {
  return {{{input({3, 5})}, PermuteAttrs{{1, 0}}}, {{input({2, 3, 5})}, PermuteAttrs{{2, 0, 1}}}};
}

const OpDef& permute_op() {
  static const OpDef op{.name = "permute",
                        .rule = permute_rule,
                        .infer = permute_infer,
                        .forward = permute_forward,
                        .backward = permute_backward,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = permute_samples};
  return op;
}

}  // namespace

Tensor permute(const Tensor& x, const Shape& dims, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(static_cast<int>(dims.size()) == x.ndim(), "permute: ", dims, " names ", dims.size(),
             " of the ", x.ndim(), " dimensions of ", x);
  PermuteAttrs attrs;
  std::array<bool, 8> seen{};
  for (auto dim : dims) {
    attrs.dims.push_back(normalize_dim(dim, x.ndim(), "permute"));
    bool& used = seen[static_cast<std::size_t>(attrs.dims.back())];
    CS_REQUIRE(!used, "permute: dimension ", dim, " is named twice in ", dims);
    used = true;
  }
  return call1(permute_op(), {x}, attrs);
}

Tensor transpose(const Tensor& x, int dim0, int dim1, CallSite site) {
  const OperatorCall user(site);
  const int first = normalize_dim_or_zero(dim0, x.ndim(), "transpose");
  const int second = normalize_dim_or_zero(dim1, x.ndim(), "transpose");
  Shape dims;
  for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
  if (first != second)
    std::swap(dims[static_cast<std::size_t>(first)], dims[static_cast<std::size_t>(second)]);
  return permute(x, dims);
}

Tensor t(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.ndim() <= 2, "t: ", x, " has more than 2 dimensions");
  return x.ndim() == 2 ? transpose(x, 0, 1) : x;
}

Tensor movedim(const Tensor& x, const Shape& source, const Shape& destination, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(source.size() == destination.size(), "movedim: source ", source, " and destination ",
             destination, " differ in length");
  Shape dims = Shape::filled(x.shape().size(), -1);
  std::array<bool, 8> moved{};
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto from = static_cast<std::size_t>(normalize_dim(source[i], x.ndim(), "movedim"));
    const auto to = static_cast<std::size_t>(normalize_dim(destination[i], x.ndim(), "movedim"));
    CS_REQUIRE(!moved[from] && dims[to] == -1, "movedim: a dimension is named twice in ", source,
               " to ", destination);
    moved[from] = true;
    dims[to] = static_cast<std::int64_t>(from);
  }
  std::size_t next = 0;
  for (auto& dim : dims) {
    if (dim != -1) continue;
    while (moved[next]) ++next;
    dim = static_cast<std::int64_t>(next++);
  }
  return permute(x, dims);
}

std::span<const OpDef* const> permute_ops() {
  static const OpDef* const ops[] = {&permute_op()};
  return ops;
}

}  // namespace coshard
