// Comparisons and logic: results are bool, nothing has a gradient.
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/pointwise_forward.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::BinaryOp;

std::vector<TensorInfo> compare_infer(Infos in, const Attrs&) {
  TensorInfo out = broadcast_infer("comparison", in)[0];
  out.dtype = DType::Bool;
  return {out};
}

// Compares a tensor with itself.
template <BinaryOp f>
void self_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  const kernels::View x = broadcast_view(c.in[0], shape);
  launch(c, kernels::Binary{f, view_of(c.make()), x, x});
}

[[gnu::cold]] std::vector<OpDef::Sample> compare_pair_samples() {
  return {{{input({3, 5}, DType::I64), input({3, 5}, DType::I64)}, {}},
          {{input({2, 3, 4}), input({3, 1})}, {}}};
}
[[gnu::cold]] std::vector<OpDef::Sample> compare_number_samples() {
  return {{{input({3, 5}, DType::I64)}, ScalarAttrs{1}}, {{input({2, 3, 4})}, ScalarAttrs{0.25}}};
}
[[gnu::cold]] std::vector<OpDef::Sample> compare_bool_samples() {
  return {{{input({3, 5}, DType::Bool), input({3, 5}, DType::Bool)}, {}},
          {{input({2, 3, 4}, DType::Bool), input({3, 1}, DType::Bool)}, {}}};
}

OpDef compare_op(std::string_view name, void (*forward)(OpContext&),
                 std::vector<OpDef::Sample> (*samples)()) {
  return {.name = name,
          .rule = elementwise_rule,
          .infer = compare_infer,
          .forward = forward,
          .backward = nullptr,
          .reals_by_kind = true,
          .samples = samples};
}

// A comparison of two tensors, and of a tensor and a number.
struct Comparison {
  OpDef pair, number;
};
template <BinaryOp f>
Comparison comparison(std::string_view name, std::string_view number_name) {
  return {compare_op(name, binary_forward<f>, compare_pair_samples),
          compare_op(number_name, scalar_forward<f>, compare_number_samples)};
}

const Comparison& comparison_of(BinaryOp op) {
  static const Comparison all[] = {
      comparison<BinaryOp::Lt>("lt", "lt_scalar"), comparison<BinaryOp::Le>("le", "le_scalar"),
      comparison<BinaryOp::Gt>("gt", "gt_scalar"), comparison<BinaryOp::Ge>("ge", "ge_scalar"),
      comparison<BinaryOp::Eq>("eq", "eq_scalar"), comparison<BinaryOp::Ne>("ne", "ne_scalar")};
  return all[static_cast<int>(op) - static_cast<int>(BinaryOp::Lt)];
}

const OpDef& isnan_op() {
  static const OpDef op = compare_op("isnan", self_forward<BinaryOp::Ne>, compare_number_samples);
  return op;
}
const OpDef& logical_and_op() {
  static const OpDef op =
      compare_op("logical_and", binary_forward<BinaryOp::Minimum>, compare_bool_samples);
  return op;
}
const OpDef& logical_or_op() {
  static const OpDef op =
      compare_op("logical_or", binary_forward<BinaryOp::Maximum>, compare_bool_samples);
  return op;
}

Tensor compared(BinaryOp op, const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(a, b);
  return call_untaped(comparison_of(op).pair, {to(a, type), to(b, type)});
}
Tensor compared(BinaryOp op, const Tensor& a, const Scalar& b, CallSite site) {
  const OperatorCall user(site);
  return call_untaped(comparison_of(op).number, {to(a, result_type(a, b))}, ScalarAttrs{b.value});
}

}  // namespace

Tensor lt(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Lt, a, b, site);
}
Tensor le(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Le, a, b, site);
}
Tensor gt(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Gt, a, b, site);
}
Tensor ge(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Ge, a, b, site);
}
Tensor eq(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Eq, a, b, site);
}
Tensor ne(const Tensor& a, const Tensor& b, CallSite site) {
  return compared(BinaryOp::Ne, a, b, site);
}
Tensor lt(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Lt, a, b, site);
}
Tensor le(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Le, a, b, site);
}
Tensor gt(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Gt, a, b, site);
}
Tensor ge(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Ge, a, b, site);
}
Tensor eq(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Eq, a, b, site);
}
Tensor ne(const Tensor& a, const Scalar& b, CallSite site) {
  return compared(BinaryOp::Ne, a, b, site);
}

Tensor isnan(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return call_untaped(isnan_op(), {x});
}
Tensor logical_not(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return eq(x, 0);
}
Tensor logical_and(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return call_untaped(logical_and_op(), {to(a, DType::Bool), to(b, DType::Bool)});
}
Tensor logical_or(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return call_untaped(logical_or_op(), {to(a, DType::Bool), to(b, DType::Bool)});
}

namespace {

void require_bool(const char* op, const Tensor& x) {
  CS_REQUIRE(x.dtype() == DType::Bool, op, ": ", x, " is not bool");
}

}  // namespace

Tensor operator&(Operand a, Operand b) {
  require_bool("&", a.tensor), require_bool("&", b.tensor);
  return logical_and(a.tensor, b.tensor, a.site);
}
Tensor operator|(Operand a, Operand b) {
  require_bool("|", a.tensor), require_bool("|", b.tensor);
  return logical_or(a.tensor, b.tensor, a.site);
}
Tensor operator~(Operand x) {
  require_bool("~", x.tensor);
  return logical_not(x.tensor, x.site);
}

std::span<const OpDef* const> compare_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> list{&isnan_op(), &logical_and_op(), &logical_or_op()};
    for (int op = static_cast<int>(BinaryOp::Lt); op <= static_cast<int>(BinaryOp::Ne); ++op) {
      list.push_back(&comparison_of(static_cast<BinaryOp>(op)).pair);
      list.push_back(&comparison_of(static_cast<BinaryOp>(op)).number);
    }
    return list;
  }();
  return ops;
}

}  // namespace coshard
