#include <cmath>

#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/tape/origin.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// The first and the last key of each query.
void require_key_ranges(const Shape& q, const TensorInfo& first, const TensorInfo& last) {
  if (!first.defined && !last.defined) return;
  for (const TensorInfo* keys : {&first, &last})
    CS_REQUIRE(keys->defined && keys->dtype == DType::I64 && keys->shape == Shape({q[0], q[2]}),
               "attention: the ", keys == &first ? "first" : "last", " keys ", keys->shape, ' ',
               keys->dtype, " are not i64 [", q[0], ", ", q[2], "], one per query of q ", q);
}

// in: q, k, v, mask?, first?, last?; out: out, lse
Shape scores_shape(const Shape& q, const Shape& k) { return {q[0], q[1], q[2], k[2]}; }

std::vector<TensorInfo> attention_infer(Infos in, const Attrs&) {
  const Shape& q = in[0].shape;
  const Shape& k = in[1].shape;
  const Shape& v = in[2].shape;
  require_floating("attention", in[0]);
  require_same_dtype("attention", in[0], in[1]);
  require_same_dtype("attention", in[0], in[2]);
  CS_REQUIRE(q.size() == 4 && k.size() == 4 && v.size() == 4 && k[0] == v[0] && k[1] == v[1] &&
                 k[2] == v[2] && q[0] == k[0] && q[3] == k[3],
             "attention: q ", q, ", k ", k, ", v ", v,
             " are not [b,h,tq,d], [b,hkv,tk,d], [b,hkv,tk,dv]");
  CS_REQUIRE(k[1] > 0 ? q[1] % k[1] == 0 : q[1] == 0, "attention: ", q[1],
             " query heads are not a multiple of ", k[1], " key heads");
  if (in[3].defined) {
    if (in[3].dtype != DType::Bool) require_same_dtype("attention", in[0], in[3]);
    const Shape scores = scores_shape(q, k);
    CS_REQUIRE(broadcast(in[3].shape, scores, "attention") == scores, "attention: mask ",
               in[3].shape, " does not broadcast to ", scores);
  }
  require_key_ranges(q, in[4], in[5]);
  return {{{q[0], q[1], q[2], v[3]}, in[0].dtype},
          {{q[0], q[1], q[2]}, statistic_dtype(in[0].dtype)}};
}

// The mask's dimensions in the axes of "bhq.", '.' where it broadcasts.
std::string mask_axes(const TensorInfo& mask, const Shape& q, const Shape& k) {
  if (!mask.defined) return {};
  std::string text = broadcast_axes(mask.shape, scores_shape(q, k));
  for (char& c : text)
    if (c != '.') c = "bhq."[c - 'a'];
  return text;
}

std::string range_axes(const TensorInfo& keys) { return keys.defined ? "bq" : ""; }

// Grouped heads can be sharded if whole groups stay together.
void keep_groups(Rule& rule, const Shape& q, const Shape& k) {
  if (q[1] != k[1]) rule.even = {{'h', k[1]}};
}

// Queries may be sharded, since their offset is known. Keys must be whole.
Rule attention_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in = {"bhq.",
             "bh..",
             "bh..",
             mask_axes(in[3], in[0].shape, in[1].shape),
             range_axes(in[4]),
             range_axes(in[5])};
  rule.out = {"bhq.", "bhq"};
  keep_groups(rule, in[0].shape, in[1].shape);
  pass_partial(rule, "RRPRRR", "PR", kLinear);
  return rule;
}

// The mask as the kernel needs it: broadcast to this rank's scores.
kernels::View mask_view(const Tensor& mask, const Tensor& q, const Tensor& k) {
  if (!mask.defined()) return {};
  return broadcast_view(mask, scores_shape(q.local_shape(), k.local_shape()));
}

kernels::View range_view(const Tensor& keys) {
  return keys.defined() ? view_of(keys) : kernels::View{};
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
  const Tensor& out = make_by_position(c, 0);
  c.make(1);
  if (out.local_numel() == 0) return;
  const auto a = c.attrs.as<AttentionAttrs>();
  launch(c, kernels::Attention{view_of(out), view_of(q), view_of(k), view_of(v), c.out[1].address(),
                               a.scale, a.causal, a.diagonal + c.offset(0, 2),
                               mask_view(c.in[3], q, k), a.window, range_view(c.in[4]),
                               range_view(c.in[5])});
}

struct AttentionBackwardAttrs {
  AttentionAttrs forward;
  bool dmask;  // whether it is requested
};

// in: dout, q, k, v, out, lse, mask?, first?, last?; out: dq, dk, dv, dmask (of the scores)
std::vector<TensorInfo> attention_backward_infer(Infos in, const Attrs& attrs) {
  require_key_ranges(in[1].shape, in[7], in[8]);
  std::vector<TensorInfo> out{in[1], in[2], in[3]};
  if (attrs.as<AttentionBackwardAttrs>().dmask)
    out.push_back({scores_shape(in[1].shape, in[2].shape), in[1].dtype});
  return out;
}

// Sharding the queries makes dk and dv, sums over them, Partial.
Rule attention_backward_rule(Infos in, const Attrs& attrs) {
  const bool dmask = attrs.as<AttentionBackwardAttrs>().dmask;
  Rule rule;
  rule.in = {"bhq.",
             "bhq.",
             "bh..",
             "bh..",
             "bhq.",
             "bhq",
             mask_axes(in[6], in[1].shape, in[2].shape),
             range_axes(in[7]),
             range_axes(in[8])};
  rule.out = {"bhq.", "bh..", "bh.."};
  if (dmask) rule.out.push_back("bhq.");
  keep_groups(rule, in[1].shape, in[2].shape);
  pass_partial(rule, "PRRRRRRRR", dmask ? "PPPP" : "PPP", kLinear);
  pass_partial(rule, "RRRPPRRRR", dmask ? "PPRP" : "PPR", kLinear);
  return rule;
}

void attention_backward_forward(OpContext& c) {
  std::array<Tensor, 5> in;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = with_unit_rows(c.in[i]);
  const Tensor lse = local_contiguous(c.in[5]);
  for (int i = 0; i < 3; ++i) make_by_position(c, i);
  const auto [a, wants_dmask] = c.attrs.as<AttentionBackwardAttrs>();
  kernels::View dmask;
  if (wants_dmask) dmask = view_of(c.make(3));
  if (in[1].local_numel() == 0 && in[2].local_numel() == 0) return;
  launch(c, kernels::AttentionGrad{view_of(c.out[0]), view_of(c.out[1]), view_of(c.out[2]),
                                   view_of(in[0]), view_of(in[4]), view_of(in[1]), view_of(in[2]),
                                   view_of(in[3]), lse.const_data(), a.scale, a.causal,
                                   a.diagonal + c.offset(1, 2), mask_view(c.in[6], in[1], in[2]),
                                   dmask, a.window, range_view(c.in[7]), range_view(c.in[8])});
}

const OpDef& attention_backward_op() {
  static const OpDef op{.name = "attention_backward",
                        .rule = attention_backward_rule,
                        .infer = attention_backward_infer,
                        .forward = attention_backward_forward,
                        .backward = nullptr,
                        .compute = ComputeClass::Attention,
                        .samples = no_samples};
  return op;
}

void attention_backward(GradContext& c) {
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1], c.in[2], c.out[0],
                       c.out[1],      c.in[3], c.in[4], c.in[5]};
  const bool dmask = c.sink.needs_grad(3);
  const AttentionBackwardAttrs attrs{c.attrs.as<AttentionAttrs>(), dmask};
  const auto grads = call(attention_backward_op(), in, attrs);
  for (int i = 0; i < 3; ++i)
    if (c.sink.needs_grad(i)) c.sink.accumulate(i, grads[static_cast<std::size_t>(i)]);
  if (dmask) c.sink.accumulate(3, sum_to(grads[3], c.in_info[3].shape));
}

[[gnu::cold]] std::vector<OpDef::Sample> attention_samples() {
  const TensorInfo x = input({2, 3, 5, 4});
  const TensorInfo q = input({2, 2, 3, 2});
  const TensorInfo k = input({2, 2, 4, 2});
  const TensorInfo no = absent();
  const TensorInfo keys = input({2, 3}, DType::I64);
  return {{{x, x, x, no, no, no}, AttentionAttrs{true, 0, 0.5}},
          {{input({1, 6, 3, 2}), input({1, 3, 5, 2}), input({1, 3, 5, 2}), no, no, no},
           AttentionAttrs{true, 2, 0.7}},
          {{input({3, 2, 3, 4}), input({3, 2, 4, 4}), input({3, 2, 4, 3}), no, no, no},
           AttentionAttrs{false, 0, 0.5}},
          {{x, x, x, no, no, no}, AttentionAttrs{true, 0, 0.5, 2}},
          {{q, k, k, no, keys, keys}, AttentionAttrs{false, 0, 0.5}},
          {{q, k, k, input({3, 4}), no, no}, AttentionAttrs{false, 0, 0.5}},
          {{q, k, k, input({2, 1, 1, 4}), no, no}, AttentionAttrs{true, 0, 0.5}},
          {{q, k, k, input({2, 1, 3, 4}, DType::Bool), no, no},
           AttentionAttrs{false, 0, 0.5},
           -2,
           2,
           2}};
}

const OpDef& attention_op() {
  static const OpDef op{.name = "attention",
                        .rule = attention_rule,
                        .infer = attention_infer,
                        .forward = attention_forward,
                        .backward = attention_backward,
                        .compute = ComputeClass::Attention,
                        .samples = attention_samples};
  return op;
}

}  // namespace

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

// Where `keep` is false, sets scores so low that their weight is 0; finite, so that a fully masked
// row has a gradient.
Tensor hidden_unless(const Tensor& keep, const Tensor& scores) {
  return masked_fill(scores, logical_not(keep), scores.dtype() == DType::F16 ? -6e4 : -1e30);
}

// Bool [tq, tk], on q's mesh: query i sees keys j <= i.
Tensor causal_mask(const Tensor& q, const Tensor& k) {
  const Shape shape{q.size(2), k.size(2)};
  if (!q.is_distributed()) return tril(filled(q.device(), shape, 1, DType::F32)) > 0.5;
  const auto spec = make_spec(q.mesh(), Layout::filled(q.mesh().ndim(), Replicate()), shape);
  const Tensor ones = filled(q.device(), spec->local_shape, 1, DType::F32).with_spec(spec);
  return tril(numbered(ones, Numbered::DTensor)) > 0.5;
}

// With explicit weights, so that they can be dropped.
Tensor attention_with_dropout(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                              bool is_causal, double scale, double p) {
  const std::int64_t group = q.size(1) / k.size(1);
  const Tensor keys = group == 1 ? k : repeat_interleave(k, group, 1);
  const Tensor values = group == 1 ? v : repeat_interleave(v, group, 1);
  Tensor scores = matmul(mul(q, scale), transpose(keys, -2, -1));
  const Tensor keep = is_causal ? causal_mask(q, k) : mask;
  if (!keep.defined()) return matmul(dropout(softmax(scores, -1), p), values);
  if (keep.dtype() != DType::Bool) return matmul(dropout(softmax(scores + keep, -1), p), values);
  const Tensor weights = softmax(hidden_unless(keep, scores), -1);
  return matmul(dropout(masked_fill(weights, logical_not(keep), 0), p), values);
}

// Adds missing batch and head dimensions.
Tensor with_four_dims(Tensor x) {
  CS_REQUIRE(x.ndim() >= 2 && x.ndim() <= 4, kName, ": ", x,
             " is not [seq, dim], [heads, seq, dim] or [batch, heads, seq, dim]");
  while (x.ndim() < 4) x = unsqueeze(x, 0);
  return x;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, Probability dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(query.ndim() == key.ndim() && key.ndim() == value.ndim(), kName, ": q ", query, ", k ",
             key, ", v ", value, " differ in their number of dimensions");
  const double p = dropout_p.value;
  CS_REQUIRE(p >= 0 && p <= 1, kName, ": dropout_p ", p, " is not in [0, 1]");
  const Tensor q = with_four_dims(query), k = with_four_dims(key), v = with_four_dims(value);
  CS_REQUIRE(!mask.defined() || !is_causal, kName,
             ": give is_causal or a mask, not both; got mask ", mask);
  CS_REQUIRE(enable_gqa || q.size(1) == k.size(1), kName, ": ", q.size(1), " query heads and ",
             k.size(1), " key heads; set enable_gqa");
  const double by = scale ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor out = p > 0 ? attention_with_dropout(q, k, v, mask, is_causal, by, p)
                     : call1(attention_op(), {q, k, v, mask, Tensor(), Tensor()},
                             AttentionAttrs{.causal = is_causal, .diagonal = 0, .scale = by});
  while (out.ndim() > query.ndim()) out = squeeze(out, 0);
  return out;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                 std::optional<double> scale, std::int64_t window, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(window >= 0 && (causal || window == 0), "attention: window ", window,
             causal ? " is negative" : " without causal");
  CS_REQUIRE(q.ndim() == 4 && k.ndim() == 4, "attention: q ", q, ", k ", k, " are not [b,h,t,d]");
  const double by = scale ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const std::int64_t diagonal = causal ? k.size(2) - q.size(2) : 0;
  return call1(
      attention_op(), {q, k, v, Tensor(), Tensor(), Tensor()},
      AttentionAttrs{.causal = causal, .diagonal = diagonal, .scale = by, .window = window});
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyRanges& keys,
                 std::optional<double> scale, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(q.ndim() == 4 && keys.first.defined() && keys.last.defined(), "attention: q ", q,
             " is not [b,h,t,d], or the first or last keys are missing");
  const double by = scale ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  return call1(attention_op(),
               {q, k, v, Tensor(), on_mesh_of(q, keys.first), on_mesh_of(q, keys.last)},
               AttentionAttrs{.causal = false, .diagonal = 0, .scale = by});
}

std::span<const OpDef* const> attention_ops() {
  static const OpDef* const ops[] = {&attention_op(), &attention_backward_op()};
  return ops;
}

}  // namespace coshard
