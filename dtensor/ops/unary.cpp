// Functions of one element (kernels/elementwise/unary.h) as operators: which Partials pass, and how
// their gradients are made.
#include <cmath>
#include <limits>

#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/pointwise_forward.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::UnaryOp;

template <UnaryOp f>
using Function = typename kernels::elementwise::FunctionOf<f>::type;

// How the operator's gradient is computed: by its kernel, by the operator itself, or as zeros.
enum class UnaryGradient : std::uint8_t { Kernel, Itself, Zero };
constexpr UnaryGradient gradient_of(UnaryOp f) {
  switch (f) {
    case UnaryOp::Neg:
    case UnaryOp::AddScalar:
    case UnaryOp::MulScalar: return UnaryGradient::Itself;
    case UnaryOp::Sign:
    case UnaryOp::Floor: return UnaryGradient::Zero;
    default: return UnaryGradient::Kernel;
  }
}

// Where the function's domain is bounded (log, sqrt, …), a term may lie outside: no Partial passes.
constexpr Pass pass_of(UnaryOp f) {
  switch (f) {
    case UnaryOp::Neg: return Pass::MonotoneDecreasing;
    case UnaryOp::Sign:
    case UnaryOp::Floor:
    case UnaryOp::Relu:
    case UnaryOp::Clamp:
    case UnaryOp::Exp:
    case UnaryOp::Expm1:
    case UnaryOp::Tanh:
    case UnaryOp::Sigmoid:
    case UnaryOp::Softplus:
    case UnaryOp::Erf: return Pass::MonotoneIncreasing;
    default: return Pass::Nothing;
  }
}

// For samples: a range of elements where the function has a derivative, and parameters.
struct UnarySamples {
  double low = -2, high = 2;
  Attrs attrs{};
};
UnarySamples samples_of(UnaryOp f) {
  switch (f) {
    case UnaryOp::Abs:
    case UnaryOp::Sign:
    case UnaryOp::Relu: return {0.1, 2};
    case UnaryOp::Floor: return {1.1, 1.9};
    case UnaryOp::LeakyRelu: return {-2, -0.1, LeakyReluAttrs{0.2}};
    case UnaryOp::Clamp:
      return {-1, 0.9, ClampAttrs{-1.5, std::numeric_limits<double>::infinity()}};
    case UnaryOp::MulScalar: return {-2, 2, ScalarAttrs{-0.75}};
    case UnaryOp::AddScalar: return {-2, 2, ScalarAttrs{1.5}};
    case UnaryOp::PowScalar: return {0.5, 2, ScalarAttrs{-1.5}};
    case UnaryOp::Log:
    case UnaryOp::Sqrt:
    case UnaryOp::Rsqrt:
    case UnaryOp::Reciprocal: return {0.5, 2};
    case UnaryOp::Log1p: return {-0.5, 2};
    default: return {};
  }
}

template <UnaryOp f>
std::vector<TensorInfo> unary_infer(Infos in, const Attrs&) {
  constexpr std::string_view kName = Function<f>::kName;
  if (!kernels::takes_integers(f)) require_floating(kName, in[0]);
  CS_REQUIRE(in[0].dtype != DType::Bool, kName, " does not support bool, got bool", in[0].shape);
  return {in[0]};
}

template <UnaryOp f>
Rule unary_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_one(rule, 0, pass_of(f));
  if (f == UnaryOp::Neg) pass_one(rule, 0, Pass::Linear);
  if (f == UnaryOp::MulScalar) pass_scaled(rule, 0, attrs.as<ScalarAttrs>().value);
  if (f == UnaryOp::LeakyRelu && attrs.as<LeakyReluAttrs>().slope >= 0)
    pass_one(rule, 0, Pass::MonotoneIncreasing);
  if (f == UnaryOp::AddScalar) {
    pass_one(rule, 0, Pass::Affine);
    pass_one(rule, 0, Pass::MonotoneIncreasing);
  }
  return rule;
}

// in: dy, and x or y, as the derivative needs. Linear in dy.
Rule unary_derivative_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_one(rule, 0, Pass::Linear);
  return rule;
}

template <UnaryOp f>
void unary_derivative_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor x = local_contiguous(c.in[1]);
  Tensor& dx = c.make();
  const auto [alpha, beta] = unary_parameters<f>(c.attrs);
  launch(c, kernels::UnaryGrad{f, x.dtype(), x.local_numel(), dy.const_data(), x.const_data(),
                               dx.address(), alpha, beta});
}

// Whether the derivative is piecewise constant, so that only dy gets a gradient.
constexpr bool has_constant_derivative(UnaryOp f) {
  return f == UnaryOp::Relu || f == UnaryOp::LeakyRelu || f == UnaryOp::Clamp || f == UnaryOp::Abs;
}

template <UnaryOp f>
const OpDef& unary_derivative_op();

template <UnaryOp f>
void unary_derivative_backward(GradContext& c) {
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, call1(unary_derivative_op<f>(), {c.out_grad[0], c.in[1]}, c.attrs));
}

// dy times the derivative, composed of differentiable operators; undefined: not implemented.
template <UnaryOp f>
Tensor differentiable_derivative(const Tensor& dy, const Tensor& at) {
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
const OpDef& unary_derivative_op() {
  static const std::string name = str_cat(Function<f>::kName, "_backward");
  static const OpDef op{
      .name = name,
      .rule = unary_derivative_rule,
      .infer = same_as_first,
      .forward = unary_derivative_forward<f>,
      .backward = has_constant_derivative(f) ? unary_derivative_backward<f> : nullptr,
      .saves_in = 0b10,
      .saves_out = 0,
      .reals_by_kind = true,
      .samples = no_samples};
  return op;
}

template <UnaryOp f>
const OpDef& unary_op();

template <UnaryOp f>
void unary_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Tensor& dy = c.out_grad[0];
  if constexpr (f == UnaryOp::AddScalar) {
    c.sink.accumulate(0, dy);
  } else if constexpr (gradient_of(f) == UnaryGradient::Zero) {
    c.sink.accumulate(0, zeros_like(dy));
  } else if constexpr (gradient_of(f) == UnaryGradient::Itself) {
    c.sink.accumulate(0, call1(unary_op<f>(), {dy}, c.attrs));
  } else {
    const Tensor& at = kernels::is_from_result(f) ? c.out[0] : c.in[0];
    const Tensor derivative = grad_enabled() ? differentiable_derivative<f>(dy, at) : Tensor();
    if (derivative.defined()) return c.sink.accumulate(0, derivative);
    c.sink.accumulate(0, call1(unary_derivative_op<f>(), {dy, at}, c.attrs));
  }
}

template <UnaryOp f>
[[gnu::cold]] std::vector<OpDef::Sample> unary_samples() {
  const UnarySamples t = samples_of(f);
  return {{{input({3, 5})}, t.attrs, t.low, t.high}, {{input({2, 3, 4})}, t.attrs, t.low, t.high}};
}

template <UnaryOp f>
const OpDef& unary_op() {
  constexpr bool kKernel = gradient_of(f) == UnaryGradient::Kernel;
  constexpr bool kResult = kKernel && kernels::is_from_result(f);
  static const OpDef op{.name = Function<f>::kName,
                        .rule = unary_rule<f>,
                        .infer = unary_infer<f>,
                        .forward = unary_forward<f>,
                        .backward = unary_backward<f>,
                        .saves_in = kKernel && !kResult ? 1U : 0U,
                        .saves_out = kResult ? 1U : 0U,
                        .reals_by_kind = true,
                        .pointwise = true,
                        .samples = unary_samples<f>};
  return op;
}

// In x's dtype; unary_in_floats, for functions without integer results, in f32 for integers.
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
  CS_REQUIRE(min || max, "clamp: give min, max or both");
  const DType type = min ? result_type(x, *min) : x.dtype();
  return max ? promoted(type, result_type(x, *max)) : type;
}
ClampAttrs clamp_attrs(std::optional<Scalar> min, std::optional<Scalar> max) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {min ? min->value : -kInfinity, max ? max->value : kInfinity};
}

template <UnaryOp f>
void list_unary(std::vector<const OpDef*>& list) {
  list.push_back(&unary_op<f>());
  if constexpr (gradient_of(f) == UnaryGradient::Kernel) list.push_back(&unary_derivative_op<f>());
}

}  // namespace

Tensor neg(const Tensor& x, CallSite site) { return unary<UnaryOp::Neg>(x, site); }
Tensor abs(const Tensor& x, CallSite site) { return unary<UnaryOp::Abs>(x, site); }
Tensor sign(const Tensor& x, CallSite site) { return unary<UnaryOp::Sign>(x, site); }
Tensor floor(const Tensor& x, CallSite site) { return unary<UnaryOp::Floor>(x, site); }
Tensor relu(const Tensor& x, CallSite site) { return unary<UnaryOp::Relu>(x, site); }
Tensor square(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
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
  const OperatorCall user(site);
  return unary_of<UnaryOp::LeakyRelu>(x, LeakyReluAttrs{negative_slope});
}

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max, CallSite site) {
  const OperatorCall user(site);
  return unary_of<UnaryOp::Clamp>(to(x, clamp_type(x, min, max)), clamp_attrs(min, max));
}

Tensor add(const Tensor& a, const Scalar& scalar, double alpha, CallSite site) {
  const OperatorCall user(site);
  return unary_of<UnaryOp::AddScalar>(to(a, result_type(a, scalar)),
                                      ScalarAttrs{scalar.value * alpha});
}
Tensor mul(const Tensor& a, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  return unary_of<UnaryOp::MulScalar>(to(a, result_type(a, scalar)), ScalarAttrs{scalar.value});
}
Tensor pow(const Tensor& a, const Scalar& exponent, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(a, exponent);
  CS_REQUIRE(is_floating(type) || exponent.value >= 0, "pow: ", type, a.shape(),
             " cannot be raised to the negative power ", exponent.value);
  return unary_of<UnaryOp::PowScalar>(to(a, type), ScalarAttrs{exponent.value});
}

Tensor add_(const Tensor& x, const Scalar& scalar, double alpha, CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::AddScalar>(), x, result_type(x, scalar),
                   ScalarAttrs{scalar.value * alpha});
}
Tensor mul_(const Tensor& x, const Scalar& scalar, CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::MulScalar>(), x, result_type(x, scalar),
                   ScalarAttrs{scalar.value});
}
Tensor relu_(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::Relu>(), x, x.dtype(), {});
}
Tensor neg_(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::Neg>(), x, x.dtype(), {});
}
Tensor exp_(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::Exp>(), x, floating_type(x.dtype()), {});
}
Tensor clamp_(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max,
              CallSite site) {
  const OperatorCall user(site);
  return call_into(unary_op<UnaryOp::Clamp>(), x, clamp_type(x, min, max), clamp_attrs(min, max));
}

std::span<const OpDef* const> unary_ops() {
  static const auto ops = [] {
    std::vector<const OpDef*> list;
#define X(Name) list_unary<UnaryOp::Name>(list);
    COSHARD_UNARY_FUNCTIONS(X)
#undef X
    return list;
  }();
  return ops;
}

}  // namespace coshard
