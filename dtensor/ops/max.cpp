#include <bit>

#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// attrs.ints: whether the largest is wanted, bit mask of the dimensions, keepdim
// out: values, indices within the dimensions of the mask taken as one
std::vector<TensorInfo> max_infer(Infos in, const Attrs& attrs) {
  const Shape out = remaining(in[0].shape, attrs.ints[1], attrs.ints[2] == 1);
  CS_REQUIRE(numel(out) == 0 || count_over(in[0].shape, attrs.ints[1]) > 0,
             "max or min: over 0 elements of ", in[0].shape);
  return {{out, in[0].dtype}, {out, DType::I64}};
}

Rule max_rule(Infos in, const Attrs& attrs) {
  const std::string all = letters(in[0].shape.size());
  const std::string out = remaining_letters(all, attrs.ints[1], attrs.ints[2] == 1);
  Rule rule;
  rule.in = {whole_letters(all, attrs.ints[1])};
  rule.out = {out, out};
  rule.strided = true;
  return rule;
}

void max_forward(OpContext& c) {
  const MaskedLines lines = masked_lines(c.in[0], c.attrs.ints[1]);
  void* values = c.make(0).data();
  void* indices = c.make(1).data();
  launch(c, kernels::ArgReduce{c.attrs.ints[0] == 1, lines.x.dtype(), lines.n.outer, lines.n.extent,
                               lines.n.inner, lines.x.data(), values, indices});
}

// For one dimension, as `max` and `min` ask for it.
void max_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  const Shape& shape = c.in_info[0].shape;
  const std::int64_t mask = c.attrs.ints[1];
  const bool keep = c.attrs.ints[2] == 1;
  const int dim = std::countr_zero(static_cast<std::uint64_t>(mask));
  const Tensor index = keep ? c.out[1] : unsqueeze(c.out[1], dim);
  const Tensor dy = keep ? c.out_grad[0] : unsqueeze(c.out_grad[0], dim);
  c.sink.give(0, scatter_add_zeros(shape, dim, index, dy));
}

std::vector<OpDef::Sample> max_samples() {
  return {{{input({3, 5})}, {{1, 0b10, 0}, {}}},
          {{input({2, 3, 4})}, {{0, 0b010, 1}, {}}},
          {{input({5, 2})}, {{1, 0b01, 0}, {}}}};
}

const OpDef& max_op() {
  static const OpDef op{.name = "max",
                        .rule = max_rule,
                        .infer = max_infer,
                        .forward = max_forward,
                        .backward = max_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0b10,
                        .samples = max_samples};
  return op;
}

ValuesAndIndices max_call(const Tensor& x, bool largest, const Dims& dims, bool keepdim,
                          const char* name) {
  auto out = call(max_op(), {&x, 1}, {{largest, dims.mask(x.ndim(), name), keepdim}, {}});
  return {std::move(out[0]), std::move(out[1])};
}

Tensor arg_call(const Tensor& x, bool largest, std::optional<int> dim, bool keepdim,
                const char* name) {
  const NoGradGuard no_gradient;
  return max_call(x, largest, dim ? Dims(*dim) : Dims(), keepdim, name).indices;
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keepdim, CallSite site) {
  const UserCall user(site);
  return arg_call(x, true, dim, keepdim, "argmax");
}
Tensor argmin(const Tensor& x, std::optional<int> dim, bool keepdim, CallSite site) {
  const UserCall user(site);
  return arg_call(x, false, dim, keepdim, "argmin");
}
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim, CallSite site) {
  const UserCall user(site);
  return max_call(x, true, dim, keepdim, "max");
}
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim, CallSite site) {
  const UserCall user(site);
  return max_call(x, false, dim, keepdim, "min");
}

std::span<const OpDef* const> max_ops() {
  static const OpDef* const ops[] = {&max_op()};
  return ops;
}

}  // namespace coshard
