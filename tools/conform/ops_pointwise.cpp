#include "tools/conform/op_call.h"

namespace coshard::conform {
namespace {

using Tensors = std::vector<Tensor>;

OpFunction of_one(Tensor (*f)(const Tensor&, CallSite)) {
  return [f](const OpCall& c) { return Tensors{f(c[0], {})}; };
}
OpFunction of_two(Tensor (*f)(const Tensor&, const Tensor&, CallSite)) {
  return [f](const OpCall& c) { return Tensors{f(c[0], c[1], {})}; };
}
// The second operand is a tensor, or the attribute `other`.
OpFunction of_either(Tensor (*tensors)(const Tensor&, const Tensor&, CallSite),
                     Tensor (*number)(const Tensor&, const Scalar&, CallSite)) {
  return [=](const OpCall& c) {
    return Tensors{c[1].defined() ? tensors(c[0], c[1], {}) : number(c[0], c.scalar("other"), {})};
  };
}
OpFunction with_alpha(Tensor (*tensors)(const Tensor&, const Tensor&, double, CallSite),
                      Tensor (*number)(const Tensor&, const Scalar&, double, CallSite)) {
  return [=](const OpCall& c) {
    const double alpha = c.number("alpha", 1);
    return Tensors{c[1].defined() ? tensors(c[0], c[1], alpha, {})
                                  : number(c[0], c.scalar("other"), alpha, {})};
  };
}

std::optional<Scalar> maybe_scalar(const OpCall& c, const char* name) {
  return c.has(name) ? std::optional(c.scalar(name)) : std::nullopt;
}

Tensors gelu_of(const OpCall& c) {
  const std::string how = c.text("approximate", "none");
  CS_REQUIRE(how == "none" || how == "tanh", "gelu: unknown approximation '", how,
             "'; expected none or tanh");
  return {gelu(c[0], how == "tanh")};
}
Tensors clamp_of(const OpCall& c) {
  return {clamp(c[0], maybe_scalar(c, "min"), maybe_scalar(c, "max"))};
}
Tensors mse_loss_of(const OpCall& c) {
  return {mse_loss(c[0], c[1], parse_reduction(c.text("reduction", "mean")))};
}

OpTable functions_of_one() {
  return {
      {"neg", of_one(neg)},
      {"abs", of_one(abs)},
      {"exp", of_one(exp)},
      {"log", of_one(log)},
      {"sqrt", of_one(sqrt)},
      {"rsqrt", of_one(rsqrt)},
      {"tanh", of_one(tanh)},
      {"sigmoid", of_one(sigmoid)},
      {"relu", of_one(relu)},
      {"square", of_one(square)},
      {"reciprocal", of_one(reciprocal)},
      {"sin", of_one(sin)},
      {"cos", of_one(cos)},
      {"erf", of_one(erf)},
      {"sign", of_one(sign)},
      {"floor", of_one(floor)},
      {"log1p", of_one(log1p)},
      {"expm1", of_one(expm1)},
      {"isnan", of_one(isnan)},
      {"logical_not", of_one(logical_not)},
      {"clone", of_one(clone)},
      {"ones_like", of_one(ones_like)},
      {"zeros_like", of_one(zeros_like)},
      {"silu", of_one(silu)},
      {"softplus", of_one(softplus)},
      {"gelu", gelu_of},
      {"leaky_relu",
       [](const OpCall& c) { return Tensors{leaky_relu(c[0], c.number("negative_slope", 0.01))}; }},
      {"clamp", clamp_of},
      {"to", [](const OpCall& c) { return Tensors{to(c[0], parse_dtype(c.text("dtype")))}; }},
      {"dropout",
       [](const OpCall& c) {
         return Tensors{dropout(c[0], c.number("p"), c.flag("training", true))};
       }},
  };
}

OpTable functions_of_more() {
  return {
      {"add", with_alpha(add, add)},
      {"sub", with_alpha(sub, sub)},
      {"mul", of_either(mul, mul)},
      {"div", of_either(div, div)},
      {"pow", of_either(pow, pow)},
      {"remainder", of_either(remainder, remainder)},
      {"lt", of_either(lt, lt)},
      {"le", of_either(le, le)},
      {"gt", of_either(gt, gt)},
      {"ge", of_either(ge, ge)},
      {"eq", of_either(eq, eq)},
      {"ne", of_either(ne, ne)},
      {"rsub", [](const OpCall& c) { return Tensors{rsub(c[0], c.scalar("other"))}; }},
      {"maximum", of_two(maximum)},
      {"minimum", of_two(minimum)},
      {"atan2", of_two(atan2)},
      {"logical_and", of_two(logical_and)},
      {"logical_or", of_two(logical_or)},
      {"where", [](const OpCall& c) { return Tensors{where(c[0], c[1], c[2])}; }},
      {"masked_fill",
       [](const OpCall& c) { return Tensors{masked_fill(c[0], c[1], c.scalar("value"))}; }},
      {"lerp", [](const OpCall& c) { return Tensors{lerp(c[0], c[1], c.number("weight"))}; }},
      {"addcmul",
       [](const OpCall& c) { return Tensors{addcmul(c[0], c[1], c[2], c.number("value", 1))}; }},
      {"mse_loss", mse_loss_of},
  };
}

OpTable functions_in_place() {
  return {
      {"add_", with_alpha(add_, add_)},
      {"sub_", of_either(sub_, sub_)},
      {"mul_", of_either(mul_, mul_)},
      {"div_", of_either(div_, div_)},
      {"relu_", of_one(relu_)},
      {"neg_", of_one(neg_)},
      {"exp_", of_one(exp_)},
      {"zero_", of_one(zero_)},
      {"fill_", [](const OpCall& c) { return Tensors{fill_(c[0], c.scalar("value"))}; }},
      {"clamp_",
       [](const OpCall& c) {
         return Tensors{clamp_(c[0], maybe_scalar(c, "min"), maybe_scalar(c, "max"))};
       }},
      {"copy_", of_two(copy_)},
      {"masked_fill_",
       [](const OpCall& c) { return Tensors{masked_fill_(c[0], c[1], c.scalar("value"))}; }},
  };
}

}  // namespace

const OpTable& pointwise_table() {
  static const OpTable table = [] {
    OpTable all = functions_of_one();
    all.merge(functions_of_more());
    all.merge(functions_in_place());
    return all;
  }();
  return table;
}

}  // namespace coshard::conform
