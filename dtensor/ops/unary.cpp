// Functions of one element: a table of names, kernels, slopes and of the Partials that pass.
#include <cmath>
#include <limits>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/pointwise.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::UnaryGradOp;
using kernels::UnaryOp;

enum class UnaryDomain : std::uint8_t { Floats, Numbers };  // Numbers: integers too, not bool
enum class UnaryGradient : std::uint8_t { Slope, Itself, Zero };

// Whether the slope is a function of the result.
constexpr bool from_result(UnaryGradOp slope) { return slope <= UnaryGradOp::Reciprocal; }

struct UnaryTraits {
  std::string_view name, gradient_name;
  Pass pass = Pass::Nothing;
  UnaryGradOp slope = UnaryGradOp::Silu;
  UnaryGradient gradient = UnaryGradient::Slope;
  UnaryDomain domain = UnaryDomain::Floats;
  double low = -2, high = 2;  // of samples
  Attrs attrs{};              // of samples
};

UnaryTraits unary_of(std::string_view name, std::string_view gradient, UnaryGradOp slope,
                     Pass pass = Pass::Nothing, double low = -2, double high = 2,
                     Attrs attrs = {}) {
  return {name, gradient, pass, slope, UnaryGradient::Slope, UnaryDomain::Floats, low, high, attrs};
}
UnaryTraits on_numbers(UnaryTraits traits) {
  traits.domain = UnaryDomain::Numbers;
  return traits;
}

// Where the function's domain has an end (log, sqrt, …) a local term may lie outside: nothing
// passes.
UnaryTraits unary_traits_of(UnaryOp op) {
  using G = UnaryGradOp;
  constexpr Pass kRising = Pass::Rising;
  constexpr Pass kNothing = Pass::Nothing;
  switch (op) {
    case UnaryOp::Neg:
      return {"neg", "", Pass::Falling, {}, UnaryGradient::Itself, UnaryDomain::Numbers};
    case UnaryOp::Sign:
      return {"sign", "", kRising, {}, UnaryGradient::Zero, UnaryDomain::Numbers, 0.1, 2};
    case UnaryOp::Floor:
      return {"floor", "", kRising, {}, UnaryGradient::Zero, UnaryDomain::Numbers, 1.1, 1.9};
    case UnaryOp::MulScalar:
      return {"mul_scalar",         "", kNothing, {},           UnaryGradient::Itself,
              UnaryDomain::Numbers, -2, 2,        {{}, {-0.75}}};
    case UnaryOp::AddScalar:
      return {"add_scalar",         "", kNothing, {},         UnaryGradient::Itself,
              UnaryDomain::Numbers, -2, 2,        {{}, {1.5}}};
    case UnaryOp::PowScalar:
      return on_numbers(unary_of("pow_scalar", "pow_scalar_backward", G::PowScalar, kNothing, 0.5,
                                 2, {{}, {-1.5}}));
    case UnaryOp::Abs: return on_numbers(unary_of("abs", "abs_backward", G::Abs, kNothing, 0.1, 2));
    case UnaryOp::Square: return on_numbers(unary_of("square", "square_backward", G::Square));
    case UnaryOp::Relu:
      return on_numbers(unary_of("relu", "relu_backward", G::Relu, kRising, 0.1, 2));
    case UnaryOp::Clamp:
      return on_numbers(unary_of("clamp", "clamp_backward", G::Clamp, kRising, -1, 0.9,
                                 {{}, {-1.5, std::numeric_limits<double>::infinity()}}));
    case UnaryOp::Exp: return unary_of("exp", "exp_backward", G::Exp, kRising);
    case UnaryOp::Expm1: return unary_of("expm1", "expm1_backward", G::Expm1, kRising);
    case UnaryOp::Tanh: return unary_of("tanh", "tanh_backward", G::Tanh, kRising);
    case UnaryOp::Sigmoid: return unary_of("sigmoid", "sigmoid_backward", G::Sigmoid, kRising);
    case UnaryOp::Softplus: return unary_of("softplus", "softplus_backward", G::Softplus, kRising);
    case UnaryOp::Erf: return unary_of("erf", "erf_backward", G::Erf, kRising);
    case UnaryOp::Silu: return unary_of("silu", "silu_backward", G::Silu);
    case UnaryOp::Gelu: return unary_of("gelu", "gelu_backward", G::Gelu);
    case UnaryOp::GeluTanh: return unary_of("gelu_tanh", "gelu_tanh_backward", G::GeluTanh);
    case UnaryOp::Sin: return unary_of("sin", "sin_backward", G::Sin);
    case UnaryOp::Cos: return unary_of("cos", "cos_backward", G::Cos);
    case UnaryOp::LeakyRelu:
      return unary_of("leaky_relu", "leaky_relu_backward", G::LeakyRelu, kNothing, -2, -0.1,
                      {{}, {0.2}});
    case UnaryOp::Log: return unary_of("log", "log_backward", G::Log, kNothing, 0.5, 2);
    case UnaryOp::Log1p: return unary_of("log1p", "log1p_backward", G::Log1p, kNothing, -0.5, 2);
    case UnaryOp::Sqrt: return unary_of("sqrt", "sqrt_backward", G::Sqrt, kNothing, 0.5, 2);
    case UnaryOp::Rsqrt: return unary_of("rsqrt", "rsqrt_backward", G::Rsqrt, kNothing, 0.5, 2);
    case UnaryOp::Reciprocal:
      return unary_of("reciprocal", "reciprocal_backward", G::Reciprocal, kNothing, 0.5, 2);
  }
  return {};
}

template <UnaryOp f>
const UnaryTraits& unary_traits() {
  static const UnaryTraits traits = unary_traits_of(f);
  return traits;
}

template <UnaryOp f>
std::vector<TensorInfo> unary_infer(Infos in, const Attrs&) {
  const UnaryTraits& traits = unary_traits<f>();
  if (traits.domain == UnaryDomain::Floats) require_floating(traits.name, in[0]);
  CS_REQUIRE(in[0].dtype != DType::Bool, traits.name, ": of bool ", in[0].shape);
  return {in[0]};
}

template <UnaryOp f>
Rule unary_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_one(rule, 0, unary_traits<f>().pass);
  if (f == UnaryOp::Neg) pass_one(rule, 0, Pass::Linear);
  if (f == UnaryOp::MulScalar) pass_scaled(rule, 0, attrs.reals[0]);
  if (f == UnaryOp::LeakyRelu && attrs.reals[0] >= 0) pass_one(rule, 0, Pass::Rising);
  if (f == UnaryOp::AddScalar) {
    pass_one(rule, 0, Pass::Affine);
    pass_one(rule, 0, Pass::Rising);
  }
  return rule;
}

// in: dy, and x or y, as the slope wants. Linear in dy.
Rule unary_slope_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_one(rule, 0, Pass::Linear);
  return rule;
}

template <UnaryOp f>
void unary_slope_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor x = local_contiguous(c.in[1]);
  Tensor& dx = c.make();
  const auto& reals = c.attrs.reals;
  launch(c, kernels::UnaryGrad{unary_traits<f>().slope, x.dtype(), x.local_numel(), dy.data(),
                               x.data(), dx.data(), reals.size() > 0 ? reals[0] : 0,
                               reals.size() > 1 ? reals[1] : 0});
}

// Whether the slope does not change, so that its gradient is that of dy alone.
constexpr bool has_constant_slope(UnaryOp f) {
  return f == UnaryOp::Relu || f == UnaryOp::LeakyRelu || f == UnaryOp::Clamp || f == UnaryOp::Abs;
}

template <UnaryOp f>
const OpDef& unary_slope_op();

template <UnaryOp f>
void unary_slope_backward(GradContext& c) {
  if (c.sink.wants(0))
    c.sink.give(0, call1(unary_slope_op<f>(), {c.out_grad[0], c.in[1]}, c.attrs));
}

// dy times the slope, of operators that have a gradient themselves; undefined: there are none yet.
template <UnaryOp f>
Tensor differentiable_slope(const Tensor& dy, const Tensor& at) {
  switch (f) {
    case UnaryOp::Square: return mul(dy, mul(at, 2.0));
    case UnaryOp::Exp: return mul(dy, at);
    case UnaryOp::Expm1: return mul(dy, add(at, 1.0));
    case UnaryOp::Tanh: return mul(dy, add(neg(mul(at, at)), 1.0));
    case UnaryOp::Sigmoid: return mul(dy, mul(at, add(neg(at), 1.0)));
    case UnaryOp::Sin: return mul(dy, cos(at));
    case UnaryOp::Cos: return neg(mul(dy, sin(at)));
    case UnaryOp::Log: return div(dy, at);
    case UnaryOp::Log1p: return div(dy, add(at, 1.0));
    case UnaryOp::Sqrt: return div(dy, mul(at, 2.0));
    case UnaryOp::Reciprocal: return neg(mul(dy, mul(at, at)));
    default: return Tensor();
  }
}

template <UnaryOp f>
const OpDef& unary_slope_op() {
  static const OpDef op{.name = unary_traits<f>().gradient_name,
                        .rule = unary_slope_rule,
                        .infer = same_as_first,
                        .forward = unary_slope_forward<f>,
                        .backward = has_constant_slope(f) ? unary_slope_backward<f> : nullptr,
                        .flops = one_per_element,
                        .saves_in = 0b10,
                        .saves_out = 0,
                        .samples = no_samples};
  return op;
}

template <UnaryOp f>
const OpDef& unary_op();

template <UnaryOp f>
void unary_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  const Tensor& dy = c.out_grad[0];
  if constexpr (f == UnaryOp::AddScalar) {
    c.sink.give(0, dy);
  } else if (unary_traits<f>().gradient == UnaryGradient::Zero) {
    c.sink.give(0, zeros_like(dy));
  } else if (unary_traits<f>().gradient == UnaryGradient::Itself) {
    c.sink.give(0, call1(unary_op<f>(), {dy}, c.attrs));
  } else {
    const bool result = from_result(unary_traits<f>().slope);
    const Tensor& at = result ? c.out[0] : c.in[0];
    const Tensor slope = grad_enabled() ? differentiable_slope<f>(dy, at) : Tensor();
    if (slope.defined()) return c.sink.give(0, slope);
    c.sink.give(0, call1(unary_slope_op<f>(), {dy, at}, c.attrs));
  }
}

template <UnaryOp f>
std::vector<OpDef::Sample> unary_samples() {
  const UnaryTraits& t = unary_traits<f>();
  return {{{input({3, 5})}, t.attrs, t.low, t.high}, {{input({2, 3, 4})}, t.attrs, t.low, t.high}};
}

template <UnaryOp f>
const OpDef& unary_op() {
  const bool slope = unary_traits<f>().gradient == UnaryGradient::Slope;
  const bool result = slope && from_result(unary_traits<f>().slope);
  static const OpDef op{.name = unary_traits<f>().name,
                        .rule = unary_rule<f>,
                        .infer = unary_infer<f>,
                        .forward = unary_forward<f>,
                        .backward = unary_backward<f>,
                        .flops = one_per_element,
                        .saves_in = slope && !result ? 1U : 0U,
                        .saves_out = result ? 1U : 0U,
                        .samples = unary_samples<f>};
  return op;
}

// Of the dtype itself, or in f32 where the function has no integer results.
template <UnaryOp f>
Tensor unary_of(const Tensor& x, const Attrs& attrs) {
  return call1(unary_op<f>(), {x}, attrs);
}
template <UnaryOp f>
Tensor unary(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return unary_of<f>(x, {});
}
template <UnaryOp f>
Tensor unary_in_floats(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return call1(unary_op<f>(), {to(x, floating_type(x.dtype()))});
}

DType clamp_type(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  CS_REQUIRE(min || max, "clamp: neither min nor max is given");
  const DType type = min ? result_type(x, *min) : x.dtype();
  return max ? promoted(type, result_type(x, *max)) : type;
}
Attrs clamp_attrs(std::optional<Scalar> min, std::optional<Scalar> max) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {{}, {min ? min->value : -kInfinity, max ? max->value : kInfinity}};
}

template <UnaryOp... f>
std::vector<const OpDef*> unary_list() {
  std::vector<const OpDef*> list{&unary_op<f>()...};
  for (const OpDef* slope : {&unary_slope_op<f>()...})
    if (!slope->name.empty()) list.push_back(slope);
  return list;
}

}  // namespace

Tensor neg(const Tensor& x, CallSite site) { return unary<UnaryOp::Neg>(x, site); }
Tensor abs(const Tensor& x, CallSite site) { return unary<UnaryOp::Abs>(x, site); }
Tensor sign(const Tensor& x, CallSite site) { return unary<UnaryOp::Sign>(x, site); }
Tensor floor(const Tensor& x, CallSite site) { return unary<UnaryOp::Floor>(x, site); }
Tensor relu(const Tensor& x, CallSite site) { return unary<UnaryOp::Relu>(x, site); }
Tensor square(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return unary_of<UnaryOp::Square>(to(x, x.dtype() == DType::Bool ? DType::I64 : x.dtype()), {});
}
Tensor exp(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Exp>(x, site); }
Tensor log(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Log>(x, site); }
Tensor sqrt(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Sqrt>(x, site); }
Tensor rsqrt(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Rsqrt>(x, site); }
Tensor tanh(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Tanh>(x, site); }
Tensor sigmoid(const Tensor& x, CallSite site) {
  return unary_in_floats<UnaryOp::Sigmoid>(x, site);
}
Tensor reciprocal(const Tensor& x, CallSite site) {
  return unary_in_floats<UnaryOp::Reciprocal>(x, site);
}
Tensor sin(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Sin>(x, site); }
Tensor cos(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Cos>(x, site); }
Tensor erf(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Erf>(x, site); }
Tensor log1p(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Log1p>(x, site); }
Tensor expm1(const Tensor& x, CallSite site) { return unary_in_floats<UnaryOp::Expm1>(x, site); }
Tensor silu(const Tensor& x, CallSite site) { return unary<UnaryOp::Silu>(x, site); }
Tensor softplus(const Tensor& x, CallSite site) { return unary<UnaryOp::Softplus>(x, site); }
Tensor gelu(const Tensor& x, bool tanh_approximation, CallSite site) {
  return tanh_approximation ? unary<UnaryOp::GeluTanh>(x, site) : unary<UnaryOp::Gelu>(x, site);
}
Tensor leaky_relu(const Tensor& x, double negative_slope, CallSite site) {
  const UserCall user(site);
  return unary_of<UnaryOp::LeakyRelu>(x, {{}, {negative_slope}});
}

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, CallSite site) {
  const UserCall user(site);
  return unary_of<UnaryOp::Clamp>(to(x, clamp_type(x, min, max)), clamp_attrs(min, max));
}

Tensor add(const Tensor& a, const Scalar& scalar, double alpha, CallSite site) {
  const UserCall user(site);
  return unary_of<UnaryOp::AddScalar>(to(a, result_type(a, scalar)), {{}, {scalar.value * alpha}});
}
Tensor mul(const Tensor& a, const Scalar& scalar, CallSite site) {
  const UserCall user(site);
  return unary_of<UnaryOp::MulScalar>(to(a, result_type(a, scalar)), {{}, {scalar.value}});
}
Tensor pow(const Tensor& a, const Scalar& exponent, CallSite site) {
  const UserCall user(site);
  const DType type = result_type(a, exponent);
  CS_REQUIRE(is_floating(type) || exponent.value >= 0, "pow: ", type, a.shape(),
             " to the negative integer power ", exponent.value);
  return unary_of<UnaryOp::PowScalar>(to(a, type), {{}, {exponent.value}});
}

Tensor add_(const Tensor& x, const Scalar& scalar, double alpha, CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::AddScalar>(), x, result_type(x, scalar),
                   {{}, {scalar.value * alpha}});
}
Tensor mul_(const Tensor& x, const Scalar& scalar, CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::MulScalar>(), x, result_type(x, scalar), {{}, {scalar.value}});
}
Tensor relu_(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::Relu>(), x, x.dtype(), {});
}
Tensor neg_(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::Neg>(), x, x.dtype(), {});
}
Tensor exp_(const Tensor& x, CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::Exp>(), x, floating_type(x.dtype()), {});
}
Tensor clamp_(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max,
              CallSite site) {
  const UserCall user(site);
  return call_into(unary_op<UnaryOp::Clamp>(), x, clamp_type(x, min, max), clamp_attrs(min, max));
}

std::span<const OpDef* const> unary_ops() {
  using O = UnaryOp;
  static const auto ops =
      unary_list<O::Neg, O::Abs, O::Exp, O::Log, O::Sqrt, O::Rsqrt, O::Tanh, O::Sigmoid, O::Relu,
                 O::Silu, O::Gelu, O::GeluTanh, O::Square, O::Reciprocal, O::Sign, O::Erf,
                 O::LeakyRelu, O::Clamp, O::AddScalar, O::MulScalar, O::PowScalar, O::Sin, O::Cos,
                 O::Floor, O::Log1p, O::Expm1, O::Softplus>();
  return ops;
}

}  // namespace coshard
