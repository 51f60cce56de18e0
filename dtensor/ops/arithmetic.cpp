// Operators on two tensors, and those composed of them.
#include <cmath>

#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/pointwise_forward.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::BinaryOp;

template <BinaryOp f>
std::vector<TensorInfo> arithmetic_infer(Infos in, const Attrs&) {
  return broadcast_infer(kernels::to_string(f), in);
}

void give_first(GradContext& c, const Tensor& gradient) {
  c.sink.accumulate(0, sum_to(gradient, c.in_info[0].shape));
}
void give_second(GradContext& c, const Tensor& gradient) {
  c.sink.accumulate(1, sum_to(gradient, c.in_info[1].shape));
}

// --- a + alpha * b ---

// Adding a replica: each term of an avg, max or min adds all of it; each term of a sum adds a share
// (the replica becomes a Partial(sum)).
Rule add_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  if (in[0].dtype == DType::Bool) return rule;
  pass_partial(rule, "PP", "P", kLinear);
  pass_one(rule, 0, Pass::MonotoneIncreasing);
  const bool rises = attrs.as<AddAttrs>().alpha >= 0;
  pass_one(rule, 1, rises ? Pass::MonotoneIncreasing : Pass::MonotoneDecreasing);
  return rule;
}

void add_forward(OpContext& c) { launch_binary<BinaryOp::Add>(c, c.attrs.as<AddAttrs>().alpha); }

void add_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) give_first(c, dy);
  if (!c.sink.needs_grad(1)) return;
  const double alpha = c.attrs.as<AddAttrs>().alpha;
  const Tensor db = sum_to(dy, c.in_info[1].shape);
  c.sink.accumulate(1, alpha == 1 ? db : mul(db, alpha));
}

// --- a * b ---

Rule mul_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  if (in[0].dtype == DType::Bool) return rule;
  pass_one(rule, 0, Pass::Linear);
  pass_one(rule, 1, Pass::Linear);
  rule.extra.push_back(partial_strategy("PP", "P", Reduce::Product));
  return rule;
}

void mul_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) give_first(c, mul(dy, c.in[1]));
  if (c.sink.needs_grad(1)) give_second(c, mul(dy, c.in[0]));
}

// --- a / b ---

Rule div_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_one(rule, 0, Pass::Linear);
  return rule;
}

void div_backward(GradContext& c) {
  const Tensor& b = c.in[1];
  const Tensor scaled = div(c.out_grad[0], b);
  if (c.sink.needs_grad(0)) give_first(c, scaled);
  // d(a/b)/db = -(a/b)/b; recomputes a/b: the output may be changed in place, as in PyTorch
  if (c.sink.needs_grad(1)) give_second(c, neg(mul(scaled, div(c.in[0], b))));
}

// --- maximum, minimum ---

// max(max(a, b), c) = max(max(a, c), max(b, c)), and likewise for min: both are increasing.
template <BinaryOp f>
Rule extreme_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  if (in[0].dtype == DType::Bool) return rule;
  constexpr Reduce kOwn = f == BinaryOp::Maximum ? Reduce::Max : Reduce::Min;
  rule.extra.push_back(partial_strategy("PP", "P", kOwn));
  pass_one(rule, 0, Pass::MonotoneIncreasing);
  pass_one(rule, 1, Pass::MonotoneIncreasing);
  return rule;
}

const OpDef& heaviside_op();

// Each operand gets the gradient where it is the result; ties split it in half.
template <BinaryOp f>
void extreme_backward(GradContext& c) {
  const Tensor& a = c.in[f == BinaryOp::Maximum ? 0 : 1];
  const Tensor& b = c.in[f == BinaryOp::Maximum ? 1 : 0];
  const Tensor& dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) give_first(c, mul(dy, call1(heaviside_op(), {a, b})));
  if (c.sink.needs_grad(1)) give_second(c, mul(dy, call1(heaviside_op(), {b, a})));
}

// --- a ** b, a % b, atan2(a, b) ---

void pow_backward(GradContext& c) {
  const Tensor &dy = c.out_grad[0], &a = c.in[0], &b = c.in[1];
  if (c.sink.needs_grad(0)) {
    const Tensor derivative = mul(b, pow(a, sub(b, 1)));
    give_first(c, mul(dy, masked_fill(derivative, eq(b, 0), 0)));
  }
  if (!c.sink.needs_grad(1)) return;
  const Tensor at_zero = logical_and(eq(a, 0), ge(b, 0));
  give_second(c, mul(dy, masked_fill(mul(c.out[0], log(a)), at_zero, 0)));
}

void remainder_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) give_first(c, dy);
  if (c.sink.needs_grad(1)) give_second(c, neg(mul(dy, floor(div(c.in[0], c.in[1])))));
}

void atan2_backward(GradContext& c) {
  const Tensor length = add(square(c.in[0]), square(c.in[1]));
  const Tensor scaled = masked_fill(div(c.out_grad[0], length), eq(length, 0), 0);  // at the origin
  if (c.sink.needs_grad(0)) give_first(c, mul(scaled, c.in[1]));
  if (c.sink.needs_grad(1)) give_second(c, neg(mul(scaled, c.in[0])));
}

// --- the operators ---

[[gnu::cold]] std::vector<OpDef::Sample> add_samples() {
  return {{{input({3, 5}), input({3, 5})}, AddAttrs{1}},
          {{input({2, 3, 5}), input({5})}, AddAttrs{1}},
          {{input({3, 1}), input({5})}, AddAttrs{-2}}};
}
[[gnu::cold]] std::vector<OpDef::Sample> arithmetic_samples() {
  return {{{input({3, 5}), input({3, 5})}, {}, 0.5, 2},
          {{input({2, 3, 5}), input({3, 1})}, {}, 0.5, 2},
          {{input({5}), input({3, 5})}, {}, 0.5, 2}};
}

template <BinaryOp f>
OpDef arithmetic(Rule (*rule)(Infos, const Attrs&), void (*backward)(GradContext&)) {
  return {.name = kernels::to_string(f),
          .rule = rule,
          .infer = arithmetic_infer<f>,
          .forward = binary_forward<f>,
          .backward = backward,
          .saves_out = 0,
          .reals_by_kind = true,
          .pointwise = true,
          .samples = arithmetic_samples};
}

const OpDef& add_op() {
  static const OpDef op = [] {
    OpDef add = arithmetic<BinaryOp::Add>(add_rule, add_backward);
    add.forward = add_forward;
    add.saves_in = 0;
    add.samples = add_samples;
    return add;
  }();
  return op;
}
const OpDef& mul_op() {
  static const OpDef op = arithmetic<BinaryOp::Mul>(mul_rule, mul_backward);
  return op;
}
const OpDef& div_op() {
  static const OpDef op = arithmetic<BinaryOp::Div>(div_rule, div_backward);
  return op;
}
const OpDef& pow_op() {
  static const OpDef op = [] {
    OpDef pow = arithmetic<BinaryOp::Pow>(elementwise_rule, pow_backward);
    pow.saves_out = 1;
    return pow;
  }();
  return op;
}
const OpDef& remainder_op() {
  static const OpDef op = arithmetic<BinaryOp::Remainder>(elementwise_rule, remainder_backward);
  return op;
}
const OpDef& atan2_op() {
  static const OpDef op = arithmetic<BinaryOp::Atan2>(elementwise_rule, atan2_backward);
  return op;
}
const OpDef& heaviside_op() {
  static const OpDef op = arithmetic<BinaryOp::Heaviside>(elementwise_rule, nullptr);
  return op;
}
template <BinaryOp f>
const OpDef& extreme_op() {
  static const OpDef op = arithmetic<f>(extreme_rule<f>, extreme_backward<f>);
  return op;
}

Tensor arithmetic_call(const OpDef& op, const Tensor& a, const Tensor& b, DType type,
                       const Attrs& attrs = {}) {
  if (a.dtype() == type && b.dtype() == type) return call1(op, {a, b}, attrs);
  return call1(op, {to(a, type), to(b, type)}, attrs);
}

// --- a number on the right: x / s and x % s ---

std::vector<TensorInfo> by_scalar_infer(Infos in, const Attrs&) {
  CS_REQUIRE(in[0].dtype != DType::Bool, "division does not support bool, got bool", in[0].shape);
  return {in[0]};
}

Rule div_scalar_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  const double by = attrs.as<ScalarAttrs>().value;
  if (by != 0) pass_scaled(rule, 0, by);
  return rule;
}

void div_scalar_backward(GradContext& c) {
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, div(c.out_grad[0], c.attrs.as<ScalarAttrs>().value));
}
void remainder_scalar_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, c.out_grad[0]);
}

[[gnu::cold]] std::vector<OpDef::Sample> by_scalar_samples() {
  return {{{input({3, 5})}, ScalarAttrs{-3}, 0.5, 2}, {{input({})}, ScalarAttrs{3}, 0.5, 2}};
}

OpDef by_scalar(std::string_view name, Rule (*rule)(Infos, const Attrs&),
                void (*forward)(OpContext&), void (*backward)(GradContext&)) {
  return {.name = name,
          .rule = rule,
          .infer = by_scalar_infer,
          .forward = forward,
          .backward = backward,
          .saves_in = 0,
          .saves_out = 0,
          .reals_by_kind = true,
          .pointwise = true,
          .samples = by_scalar_samples};
}

const OpDef& div_scalar_op() {
  static const OpDef op =
      by_scalar("div_scalar", div_scalar_rule, scalar_forward<BinaryOp::Div>, div_scalar_backward);
  return op;
}
const OpDef& remainder_scalar_op() {
  static const OpDef op = by_scalar("remainder_scalar", elementwise_rule,
                                    scalar_forward<BinaryOp::Remainder>, remainder_scalar_backward);
  return op;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, double alpha, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(a, b);
  CS_REQUIRE(is_floating(type) || alpha == std::floor(alpha), "add: alpha ", alpha,
             " must be an integer for ", type);
  return arithmetic_call(add_op(), a, b, type, AddAttrs{alpha});
}
Tensor sub(const Tensor& a, const Tensor& b, double alpha, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(a.dtype() != DType::Bool || b.dtype() != DType::Bool,
             "sub does not support two bool tensors, got bool", a.shape());
  return add(a, b, -alpha);
}
Tensor sub(const Tensor& a, const Scalar& scalar, double alpha, CallSite site) {
  const OperatorCall user(site);
  return add(a, scalar, -alpha);
}
Tensor rsub(const Tensor& a, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  return add(neg(a), scalar);
}
Tensor mul(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(mul_op(), a, b, result_type(a, b));
}
Tensor div(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(div_op(), a, b, floating_type(result_type(a, b)));
}
Tensor div(const Tensor& a, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  const DType type = floating_type(result_type(a, scalar));
  return call1(div_scalar_op(), {to(a, type)}, ScalarAttrs{scalar.value});
}
Tensor pow(const Tensor& a, const Tensor& exponent, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(pow_op(), a, exponent, result_type(a, exponent));
}
Tensor remainder(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(remainder_op(), a, b, result_type(a, b));
}
Tensor remainder(const Tensor& a, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(a, scalar);
  CS_REQUIRE(is_floating(type) || scalar.value != 0, "remainder: integer division by zero: ", type,
             a.shape(), " % 0");
  return call1(remainder_scalar_op(), {to(a, type)}, ScalarAttrs{scalar.value});
}
Tensor atan2(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(atan2_op(), a, b, floating_type(result_type(a, b)));
}
Tensor maximum(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(extreme_op<BinaryOp::Maximum>(), a, b, result_type(a, b));
}
Tensor minimum(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return arithmetic_call(extreme_op<BinaryOp::Minimum>(), a, b, result_type(a, b));
}

Tensor lerp(const Tensor& x, const Tensor& end, double weight, CallSite site) {
  const OperatorCall user(site);
  return add(mul(x, 1 - weight), end, weight);
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value, CallSite site) {
  const OperatorCall user(site);
  return add(x, mul(a, b), value);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, CallSite site) {
  const OperatorCall user(site);
  const Tensor squares = square(sub(x, target));
  if (reduction == Reduction::None) return squares;
  return reduction == Reduction::Sum ? sum(squares) : mean(squares);
}

Tensor add_(const Tensor& x, const Tensor& y, double alpha, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(x, y);
  CS_REQUIRE(is_floating(type) || alpha == std::floor(alpha), "add_: alpha ", alpha,
             " must be an integer for ", type);
  return call_into(add_op(), x, y, type, AddAttrs{alpha});
}
Tensor sub_(const Tensor& x, const Tensor& y, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.dtype() != DType::Bool || y.dtype() != DType::Bool,
             "sub_ does not support two bool tensors, got bool", x.shape());
  return add_(x, y, -1);
}
Tensor sub_(const Tensor& x, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  return add_(x, scalar, -1);
}
Tensor mul_(const Tensor& x, const Tensor& y, CallSite site) {
  const OperatorCall user(site);
  return call_into(mul_op(), x, y, result_type(x, y));
}
Tensor div_(const Tensor& x, const Tensor& y, CallSite site) {
  const OperatorCall user(site);
  return call_into(div_op(), x, y, floating_type(result_type(x, y)));
}
Tensor div_(const Tensor& x, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  return call_into(div_scalar_op(), x, floating_type(result_type(x, scalar)),
                   ScalarAttrs{scalar.value});
}

std::span<const OpDef* const> arithmetic_ops() {
  static const OpDef* const ops[] = {&add_op(),
                                     &mul_op(),
                                     &div_op(),
                                     &pow_op(),
                                     &remainder_op(),
                                     &atan2_op(),
                                     &heaviside_op(),
                                     &extreme_op<BinaryOp::Maximum>(),
                                     &extreme_op<BinaryOp::Minimum>(),
                                     &div_scalar_op(),
                                     &remainder_scalar_op()};
  return ops;
}

}  // namespace coshard
