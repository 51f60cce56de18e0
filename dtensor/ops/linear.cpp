#include "dtensor/ops/linear.h"
#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/products.h"
#include "dtensor/ops/row_choice.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Rule linear_rule(Infos in, const Attrs&) {
  const std::string rows = axes(in[0].shape.size() - 1);
  const bool bias = in[2].defined;
  Rule rule;
  rule.in = {rows + "y", "zy", bias ? "z" : ""};
  rule.strided = true;
  rule.out = {rows + "z"};
  if (bias) {
    // Where the product is summed over ranks, each rank adds a share of the bias (a Replicate
    // becomes Partial for free).
    rule.whole = "y";
    const int last = static_cast<int>(rows.size());
    for (const Reduce reduce : kLinear) {
      if (reduce == Reduce::Sum)
        rule.extra.push_back({{Shard(last), Shard(1), Partial(reduce)}, {Partial(reduce)}});
      rule.extra.push_back(partial_strategy("PRP", "P", reduce));
      rule.extra.push_back(partial_strategy("RPP", "P", reduce));
    }
  } else {
    pass_partial(rule, "PRR", "P", kLinear);
    pass_partial(rule, "RPR", "P", kLinear);
  }
  return rule;
}

std::vector<TensorInfo> linear_infer(Infos in, const Attrs&) {
  const Shape& x = in[0].shape;
  const Shape& weight = in[1].shape;
  require_floating("linear", in[0]);
  require_same_dtype("linear", in[0], in[1]);
  CS_REQUIRE(x.size() >= 2 && weight.size() == 2 && x.back() == weight[1],
             "linear: inner dimensions differ: x ", x, ", weight ", weight);
  if (in[2].defined) {
    require_same_dtype("linear", in[0], in[2]);
    CS_REQUIRE(in[2].shape == Shape({weight[0]}), "linear: bias ", in[2].shape,
               " does not match weight ", weight);
  }
  Shape out = x;
  out.back() = weight[0];
  return {{out, in[0].dtype}};
}

void linear_forward(OpContext& c) { linear_rows(c, c.in[0], c.make()); }

void linear_backward(GradContext& c) {
  const Tensor x = c.in[0];
  const Tensor weight = c.in[1];
  const Tensor dy = c.out_grad[0];
  const Overlap overlap = c.attrs.as<LinearAttrs>().overlap;
  if (c.sink.needs_grad(0)) c.sink.accumulate_product(0, dy, weight, overlap);
  if (c.sink.needs_grad(1)) c.sink.defer_rows_product(1, dy, x);
  if (c.sink.needs_grad(2)) {
    const Shape shape{dy.shape().back()};
    c.sink.defer(2, [=] { return sum_to(dy, shape); });
  }
}

// Whether to multiply shards of dy as they arrive, as the gate decides.
bool linear_takes_arriving(const Gathered& dy, std::span<const Tensor> in, const Attrs& attrs,
                           std::int64_t meanwhile_ns) {
  const Overlap overlap = attrs.as<LinearAttrs>().overlap;
  if (overlap == Overlap::Off) return false;
  const RowFactor factor = gradient_factor(Tensor(), in[1]);
  return gather_choice(dy, factor.weight, overlap, meanwhile_ns).has_value();
}

[[gnu::cold]] std::vector<OpDef::Sample> linear_samples() {
  return {{{input({3, 5}), input({6, 5}), absent()}, LinearAttrs{}},
          {{input({2, 3, 5}), input({4, 5}), input({4})}, LinearAttrs{}}};
}

}  // namespace

void linear_rows(const OpContext& c, const Tensor& x, const Tensor& out, RowsInto into) {
  const Shape rows = batch_shape(out);
  const bool flat = rows[0] == 1;
  const Tensor weight = matrix_of(c.in[1]);
  kernels::View right = transposed(view_of(weight));
  if (!flat)
    right = kernels::View{right.data,
                          right.dtype,
                          3,
                          {1, right.shape[0], right.shape[1]},
                          {0, right.strides[0], right.strides[1]}};
  const Tensor left = flat ? matrix_of(x) : batch_of(x, {rows[0], rows[1], x.local_shape().back()});
  const Tensor to = flat ? matrix_of(out) : batch_of(out, rows);
  CS_REQUIRE(to.storage() == out.storage(), "linear: ", out, " is not a view of rows");
  if (!flat) right.shape[0] = rows[0];
  kernels::Matmul product{view_of(to), view_of(left), right};
  if (into == RowsInto::Add) product.beta = 1;
  Tensor bias;  // alive until the kernel is enqueued
  if (c.in[2].defined()) {
    bias = local_contiguous(c.in[2]);
    product.bias = bias.const_data();
  }
  launch(c, product);
}

const OpDef& linear_op() {
  static const OpDef op{.name = "linear",
                        .rule = linear_rule,
                        .infer = linear_infer,
                        .forward = linear_forward,
                        .backward = linear_backward,
                        .compute = ComputeClass::Gemm,
                        .takes_arriving = linear_takes_arriving,
                        .saves_in = 0b011,
                        .saves_out = 0,
                        .samples = linear_samples};
  return op;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, CallSite site) {
  const OperatorCall user(site);
  return linear_with(x, weight, bias, Overlap::Off);
}

Tensor linear_with(const Tensor& x, const Tensor& weight, const Tensor& bias, Overlap overlap) {
  const LinearAttrs attrs{overlap};
  if (x.ndim() != 1) return call1(linear_op(), {x, weight, bias}, attrs);
  const Tensor row = call1(linear_op(), {view(x, Shape{1, x.size(0)}), weight, bias}, attrs);
  return view(row, Shape{row.size(1)});
}

std::span<const OpDef* const> linear_ops() {
  static const OpDef* const ops[] = {&linear_op()};
  return ops;
}

}  // namespace coshard
