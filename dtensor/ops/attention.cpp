#include <cmath>

#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

// in: q, k, v; out: out, lse; attrs.ints: causal; attrs.reals: scale
std::vector<TensorInfo> attention_infer(Infos in, const Attrs&) {
  const Shape& q = in[0].shape;
  const Shape& k = in[1].shape;
  const Shape& v = in[2].shape;
  require_floating("attention", in[0]);
  require_same_dtype("attention", in[0], in[1]);
  require_same_dtype("attention", in[0], in[2]);
  CS_REQUIRE(q.size() == 4 && k.size() == 4 && k == v && q[0] == k[0] && q[3] == k[3],
             "attention: q ", q, ", k ", k, ", v ", v,
             " are not [b,h,tq,d], [b,hkv,tk,d], [b,hkv,tk,d]");
  CS_REQUIRE(k[1] > 0 && q[1] % k[1] == 0, "attention: ", q[1], " query heads are no multiple of ",
             k[1], " key heads");
  return {in[0], {{q[0], q[1], q[2]}, statistic_dtype(in[0].dtype)}};
}

Rule attention_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in = {"bh..", "bh..", "bh.."};
  rule.out = {"bh..", "bh."};
  rule.even = {{'h', in[1].shape[1]}};
  return rule;
}

// Two products of tq x tk x d; a causal one needs half of them.
double attention_flops(Infos in, const Attrs& attrs) {
  return (attrs.ints[0] == 1 ? 2.0 : 4.0) * static_cast<double>(numel(in[0].shape)) *
         static_cast<double>(in[1].shape[2]);
}

Tensor with_unit_rows(const Tensor& x) {
  return x.local_shape()[3] <= 1 || x.strides()[3] == 1 ? x : local_contiguous(x);
}

// New memory [b,t,h,d] seen as [b,h,t,d], so that joining the heads afterwards is a view.
const Tensor& make_by_position(OpContext& c, int i) {
  const auto at = static_cast<std::size_t>(i);
  const Shape& n = c.out_shape[at];
  const Tensor memory =
      Tensor::empty(c.in[0].device(), Shape{n[0], n[2], n[1], n[3]}, c.out_dtype[at]);
  const Strides& s = memory.strides();
  c.out[at] = memory.view_as(n, {s[0], s[2], s[1], s[3]}, 0, nullptr);
  return c.out[at];
}

void attention_forward(OpContext& c) {
  const Tensor q = with_unit_rows(c.in[0]);
  const Tensor k = with_unit_rows(c.in[1]);
  const Tensor v = with_unit_rows(c.in[2]);
  if (q.local_numel() == 0) {
    make_by_position(c, 0);
    c.make(1);
    return;
  }
  launch(c, kernels::Attention{view_of(make_by_position(c, 0)), view_of(q), view_of(k), view_of(v),
                               c.make(1).data(), c.attrs.reals[0], c.attrs.ints[0] == 1});
}

// in: dout, q, k, v, out, lse; out: dq, dk, dv
std::vector<TensorInfo> attention_backward_infer(Infos in, const Attrs&) {
  return {in[1], in[2], in[3]};
}

Rule attention_backward_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in.assign(6, "bh..");
  rule.in[5] = "bh.";
  rule.out.assign(3, "bh..");
  rule.even = {{'h', in[2].shape[1]}};
  pass_partial(rule, "PRRRRR", "PPP", kLinear);
  return rule;
}

double attention_backward_flops(Infos in, const Attrs& attrs) {
  return 2.5 * attention_flops(in.subspan(1), attrs);
}

void attention_backward_forward(OpContext& c) {
  std::array<Tensor, 5> in;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = with_unit_rows(c.in[i]);
  const Tensor lse = local_contiguous(c.in[5]);
  for (int i = 0; i < 3; ++i) make_by_position(c, i);
  if (in[1].local_numel() == 0 && in[2].local_numel() == 0) return;
  launch(c, kernels::AttentionGrad{view_of(c.out[0]), view_of(c.out[1]), view_of(c.out[2]),
                                   view_of(in[0]), view_of(in[4]), view_of(in[1]), view_of(in[2]),
                                   view_of(in[3]), lse.data(), c.attrs.reals[0],
                                   c.attrs.ints[0] == 1});
}

const OpDef& attention_backward_op() {
  static const OpDef op{.name = "attention_backward",
                        .rule = attention_backward_rule,
                        .infer = attention_backward_infer,
                        .forward = attention_backward_forward,
                        .backward = nullptr,
                        .flops = attention_backward_flops,
                        .compute = ComputeClass::Attention,
                        .samples = no_samples};
  return op;
}

void attention_backward(GradContext& c) {
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1], c.in[2], c.out[0], c.out[1]};
  const auto grads = call(attention_backward_op(), in, c.attrs);
  for (int i = 0; i < 3; ++i)
    if (c.sink.wants(i)) c.sink.give(i, grads[static_cast<std::size_t>(i)]);
}

std::vector<OpDef::Sample> attention_samples() {
  const TensorInfo x = input({2, 3, 5, 4});
  return {{{x, x, x}, {{1}, {0.5}}},
          {{input({1, 6, 3, 2}), input({1, 3, 5, 2}), input({1, 3, 5, 2})}, {{1}, {0.7}}},
          {{input({3, 2, 3, 4}), input({3, 2, 4, 4}), input({3, 2, 4, 4})}, {{0}, {0.5}}}};
}

const OpDef& attention_op() {
  static const OpDef op{.name = "attention",
                        .rule = attention_rule,
                        .infer = attention_infer,
                        .forward = attention_forward,
                        .backward = attention_backward,
                        .flops = attention_flops,
                        .compute = ComputeClass::Attention,
                        .samples = attention_samples};
  return op;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                 std::optional<double> scale) {
  CS_REQUIRE(q.ndim() == 4, "attention: q ", q, " is not [b,h,tq,d]");
  const double by = scale ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  return call1(attention_op(), {q, k, v}, {{causal}, {by}});
}

std::span<const OpDef* const> attention_ops() {
  static const OpDef* const ops[] = {&attention_op(), &attention_backward_op()};
  return ops;
}

}  // namespace coshard
