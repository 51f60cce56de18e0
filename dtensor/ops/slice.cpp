#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/writes.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::string all_but_sliced(const Shape& shape, const SliceAttrs& a) {
  std::string text = axes(shape.size());
  text[static_cast<std::size_t>(a.dim)] = '.';
  return text;
}

// A view of the elements start, start + step, … of `whole` along the dimension.
Tensor every_step(const Tensor& whole, const SliceAttrs& a, const Shape& shape) {
  const auto dim = static_cast<std::size_t>(a.dim);
  Strides strides = whole.strides();
  const std::int64_t start = shape[dim] > 0 ? a.start * strides[dim] : 0;
  strides[dim] *= a.step;
  return whole.view_as(shape, strides, whole.storage_offset() + start, nullptr);
}

// --- slice ---

std::vector<TensorInfo> slice_infer(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<SliceAttrs>();
  Shape out = in[0].shape;
  out[static_cast<std::size_t>(a.dim)] = a.size;
  return {{out, in[0].dtype}};
}

Rule slice_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  rule.in = {all_but_sliced(in[0].shape, attrs.as<SliceAttrs>())};
  rule.out = rule.in;
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void slice_forward(OpContext& c) {
  c.out[0] = every_step(c.in[0], c.attrs.as<SliceAttrs>(), c.out_shape[0]);
}

void slice_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const auto a = c.attrs.as<SliceAttrs>();
  const std::int64_t size = c.in_info[0].shape[static_cast<std::size_t>(a.dim)];
  c.sink.accumulate(0, place(c.out_grad[0], a.dim, a.start, a.step, size));
}

[[gnu::cold]] std::vector<OpDef::Sample> slice_samples() {
  return {{{input({5, 3})}, SliceAttrs{0, 1, 1, 3}},
          {{input({2, 3, 6})}, SliceAttrs{2, 0, 1, 3}},
          {{input({3, 7})}, SliceAttrs{1, 1, 3, 2}}};
}

const OpDef& slice_op() {
  static const OpDef op{.name = "slice",
                        .rule = slice_rule,
                        .infer = slice_infer,
                        .forward = slice_forward,
                        .backward = slice_backward,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = slice_samples};
  return op;
}

// --- place, its adjoint where the rest is 0 ---

std::vector<TensorInfo> place_infer(Infos in, const Attrs& attrs) {
  const SliceAttrs a = attrs.as<PlaceAttrs>().at;
  const auto dim = static_cast<std::size_t>(a.dim);
  Shape out = in[0].shape;
  out[dim] = a.size;
  const std::int64_t count = in[0].shape[dim];
  CS_REQUIRE(count == 0 || (a.start >= 0 && a.start + (count - 1) * a.step < a.size),
             "place: ", in[0].shape, " from ", a.start, " on in ", out, " along dimension ", dim);
  return {{out, in[0].dtype}};
}

// The padding that every rank writes must reduce to itself.
Rule place_rule(Infos in, const Attrs& attrs) {
  const auto [at, value] = attrs.as<PlaceAttrs>();
  Rule rule;
  rule.in = {all_but_sliced(in[0].shape, at)};
  rule.out = rule.in;
  rule.strided = true;
  if (value == 0) pass_partial(rule, "P", "P", std::array{Reduce::Sum});
  pass_partial(rule, "P", "P", std::array{Reduce::Avg, Reduce::Min, Reduce::Max});
  return rule;
}

void place_forward(OpContext& c) {
  const auto [at, value] = c.attrs.as<PlaceAttrs>();
  const Tensor& y = c.make();
  launch(c, kernels::Fill{y.address(), y.dtype(), y.local_numel(), value});
  const Tensor part = every_step(y, at, c.in[0].local_shape());
  launch(c, kernels::Copy{view_of(part), view_of(c.in[0])});
}

void place_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  SliceAttrs attrs = c.attrs.as<PlaceAttrs>().at;
  attrs.size = c.in_info[0].shape[static_cast<std::size_t>(attrs.dim)];
  c.sink.accumulate(0, call1(slice_op(), {c.out_grad[0]}, attrs));
}

[[gnu::cold]] std::vector<OpDef::Sample> place_samples() {
  return {{{input({3, 5})}, PlaceAttrs{{0, 1, 1, 7}, 0}},
          {{input({3, 2})}, PlaceAttrs{{1, 1, 2, 5}, 0}},
          {{input({3, 2})}, PlaceAttrs{{1, 1, 1, 5}, -1.5}}};
}

const OpDef& place_op() {
  static const OpDef op{.name = "place",
                        .rule = place_rule,
                        .infer = place_infer,
                        .forward = place_forward,
                        .backward = place_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = place_samples};
  return op;
}

// A bound as in Python: negative ones count from the end, and all are clamped.
std::int64_t slice_bound(std::int64_t at, std::int64_t size) {
  return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
}

}  // namespace

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step,
             CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "slice");
  CS_REQUIRE(step > 0, "slice: step must be positive, got ", step, " along dimension ", dim, " of ",
             x);
  const std::int64_t size = x.size(along);
  const std::int64_t from = slice_bound(start, size);
  const std::int64_t to = std::max(from, slice_bound(end, size));
  if (from == 0 && to == size && step == 1) return unchanged(x);
  const std::int64_t by = std::clamp<std::int64_t>(step, 1, std::max<std::int64_t>(size, 1));
  return call1(
      slice_op(), {x},
      SliceAttrs{.dim = along, .start = from, .step = by, .size = (to - from + by - 1) / by});
}

Tensor whole_along(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "slice");
  if (!x.is_distributed()) return x;
  const SliceAttrs all{.dim = along, .start = 0, .step = 1, .size = x.size(along)};
  for (const Placement& p : x.layout())
    if (p.is_sharded(along)) return call1(slice_op(), {x}, all);
  return x;
}

Tensor place(const Tensor& x, int dim, std::int64_t start, std::int64_t step, std::int64_t size,
             double value, CallSite site) {
  const OperatorCall user(site);
  const SliceAttrs at{.dim = dim, .start = start, .step = step, .size = size};
  return call1(place_op(), {x}, PlaceAttrs{.at = at, .value = value});
}

std::span<const OpDef* const> slice_ops() {
  static const OpDef* const ops[] = {&slice_op(), &place_op()};
  return ops;
}

}  // namespace coshard
