#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/products.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// in: bias, a, b
std::vector<TensorInfo> addmm_infer(Infos in, const Attrs&) {
  const Shape& a = in[1].shape;
  const Shape& b = in[2].shape;
  require_floating("addmm", in[1]);
  require_same_dtype("addmm", in[1], in[2]);
  require_same_dtype("addmm", in[1], in[0]);
  CS_REQUIRE(a.size() == b.size() && (a.size() == 2 || a.size() == 3), "addmm: ", a, " @ ", b,
             ": both need 2 or 3 dimensions");
  CS_REQUIRE(a.back() == b[b.size() - 2] && (a.size() == 2 || a[0] == b[0]),
             "addmm: shapes do not match: ", a, " @ ", b);
  Shape out = a;
  out.back() = b.back();
  CS_REQUIRE(broadcast(in[0].shape, out, "addmm") == out, "addmm: bias ", in[0].shape,
             " does not broadcast to ", out);
  return {{out, in[1].dtype}};
}

// Where the product is summed over ranks, each adds a share of the bias (a Replicate becomes
// Partial for free).
Rule addmm_rule(Infos in, const Attrs& attrs) {
  const Shape out = addmm_infer(in, attrs).front().shape;
  const int last = static_cast<int>(out.size()) - 1;
  Rule rule;
  rule.out = {axes(out.size())};
  std::string a = rule.out[0];
  std::string b = rule.out[0];
  a[static_cast<std::size_t>(last)] = 'y';
  b[static_cast<std::size_t>(last - 1)] = 'y';
  rule.in = {broadcast_axes(in[0].shape, out), a, b};
  rule.strided = true;
  rule.whole = "y";
  rule.extra.push_back({{Partial(), Shard(last), Shard(last - 1)}, {Partial()}});
  pass_partial(rule, "PPR", "P", kLinear);
  pass_partial(rule, "PRP", "P", kLinear);
  return rule;
}

void addmm_forward(OpContext& c) {
  const auto by = c.attrs.as<AddmmAttrs>();
  const bool flat = c.in[1].ndim() == 2;
  const Tensor a = flat ? matrix_of(c.in[1]) : batch_of(c.in[1]);
  const Tensor b = flat ? matrix_of(c.in[2]) : batch_of(c.in[2]);
  const kernels::View out = view_of(c.make());
  if (by.beta != 0) launch(c, kernels::Copy{out, broadcast_view(c.in[0], c.out_shape[0])});
  launch(c, kernels::Matmul{out, view_of(a), view_of(b), by.alpha, by.beta});
}

Tensor addmm_scaled(const Tensor& x, double by) { return by == 1 ? x : mul(x, by); }

void addmm_backward(GradContext& c) {
  const Tensor a = c.in[1];
  const Tensor b = c.in[2];
  const Tensor dy = c.out_grad[0];
  const auto by = c.attrs.as<AddmmAttrs>();
  if (c.sink.needs_grad(1))
    c.sink.accumulate(1, addmm_scaled(matmul(dy, transpose(b, -2, -1)), by.alpha));
  if (c.sink.needs_grad(2))
    c.sink.defer(2, [=] { return addmm_scaled(matmul(transpose(a, -2, -1), dy), by.alpha); });
  if (!c.sink.needs_grad(0)) return;
  const Shape shape = c.in_info[0].shape;
  c.sink.defer(0, [=] { return addmm_scaled(sum_to(dy, shape), by.beta); });
}

[[gnu::cold]] std::vector<OpDef::Sample> addmm_samples() {
  return {{{input({4}), input({3, 5}), input({5, 4})}, AddmmAttrs{1, 1}},
          {{input({3, 1}), input({3, 2}), input({2, 5})}, AddmmAttrs{0.5, -2}},
          {{input({2, 1, 3}), input({2, 2, 5}), input({2, 5, 3})}, AddmmAttrs{1, 0.5}}};
}

const OpDef& addmm_op() {
  static const OpDef op{.name = "addmm",
                        .rule = addmm_rule,
                        .infer = addmm_infer,
                        .forward = addmm_forward,
                        .backward = addmm_backward,
                        .compute = ComputeClass::Gemm,
                        .saves_in = 0b110,
                        .saves_out = 0,
                        .samples = addmm_samples};
  return op;
}

}  // namespace

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b, double beta, double alpha,
             CallSite site) {
  const OperatorCall user(site);
  return call1(addmm_op(), {bias, a, b}, AddmmAttrs{.beta = beta, .alpha = alpha});
}

std::span<const OpDef* const> addmm_ops() {
  static const OpDef* const ops[] = {&addmm_op()};
  return ops;
}

}  // namespace coshard
