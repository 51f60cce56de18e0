#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ScanOp;

constexpr bool scan_has_indices(ScanOp op) { return op == ScanOp::Max || op == ScanOp::Min; }

constexpr const char* scan_name(ScanOp op) {
  switch (op) {
    case ScanOp::Sum: return "cumsum";
    case ScanOp::Product: return "cumprod";
    case ScanOp::LogSumExp: return "logcumsumexp";
    case ScanOp::Max: return "cummax";
    case ScanOp::Min: return "cummin";
  }
  return "";
}

template <ScanOp op>
std::vector<TensorInfo> scan_infer(Infos in, const Attrs&) {
  if (op == ScanOp::LogSumExp) require_floating(scan_name(op), in[0]);
  std::vector<TensorInfo> out{in[0]};
  if (scan_has_indices(op)) out.push_back({in[0].shape, DType::I64});
  return out;
}

// The dimension stays whole in all inputs and outputs.
Rule scan_rule_of(std::size_t inputs, std::size_t outputs, std::size_t ndim, const Attrs& attrs) {
  const std::string text = whole_axes(axes(ndim), std::int64_t{1} << attrs.as<ScanAttrs>().dim);
  Rule rule;
  rule.in.assign(inputs, text);
  rule.out.assign(outputs, text);
  rule.strided = true;
  return rule;
}

template <ScanOp op>
Rule scan_rule(Infos in, const Attrs& attrs) {
  Rule rule = scan_rule_of(1, scan_has_indices(op) ? 2 : 1, in[0].shape.size(), attrs);
  if (op == ScanOp::Sum) pass_partial(rule, "P", "P", kLinear);
  return rule;
}

template <ScanOp op>
void scan_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const auto a = c.attrs.as<ScanAttrs>();
  const Lines n = lines_of(x.local_shape(), a.dim);
  void* y = c.make(0).address();
  void* indices = c.outputs == 2 ? c.make(1).address() : nullptr;
  launch(c, kernels::Scan{op, a.reverse, x.dtype(), n.outer, n.extent, n.inner, x.const_data(), y,
                          indices});
}

// --- gradient of products and logarithms --- in: dy, x, y; out: dx

Rule scan_backward_rule(Infos in, const Attrs& attrs) {
  Rule rule = scan_rule_of(3, 1, in[0].shape.size(), attrs);
  pass_partial(rule, "PRR", "P", kLinear);
  return rule;
}

template <ScanOp op>
void scan_backward_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor x = local_contiguous(c.in[1]);
  const Tensor y = local_contiguous(c.in[2]);
  const Lines n = lines_of(x.local_shape(), c.attrs.as<ScanAttrs>().dim);
  launch(c, kernels::ScanGrad{op, x.dtype(), n.outer, n.extent, n.inner, dy.const_data(),
                              x.const_data(), y.const_data(), c.make().address()});
}

template <ScanOp op>
const OpDef& scan_backward_op() {
  static const OpDef made{
      .name = op == ScanOp::Product ? "cumprod_backward" : "logcumsumexp_backward",
      .rule = scan_backward_rule,
      .infer = same_as_first,
      .forward = scan_backward_forward<op>,
      .backward = nullptr,
      .samples = no_samples};
  return made;
}

template <ScanOp op>
const OpDef& scan_op();

template <ScanOp op>
void scan_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Tensor& dy = c.out_grad[0];
  if constexpr (scan_has_indices(op)) {
    const int dim = c.attrs.as<ScanAttrs>().dim;
    c.sink.accumulate(0, scatter_add_zeros(c.in_info[0].shape, dim, c.out[1], dy));
  } else if constexpr (op == ScanOp::Sum) {
    auto turned = c.attrs.as<ScanAttrs>();
    turned.reverse = !turned.reverse;
    c.sink.accumulate(0, call1(scan_op<op>(), {dy}, turned));
  } else {
    c.sink.accumulate(0, call1(scan_backward_op<op>(), {dy, c.in[0], c.out[0]}, c.attrs));
  }
}

OpDef::Sample scan_sample(const Shape& shape, int dim, bool reverse = false) {
  return {{input(shape)}, ScanAttrs{dim, reverse}};
}

template <ScanOp op>
[[gnu::cold]] std::vector<OpDef::Sample> scan_samples() {
  switch (op) {
    case ScanOp::Sum: return {scan_sample({3, 5}, 1), scan_sample({2, 3, 2}, 1, true)};
    case ScanOp::Product: return {scan_sample({5, 2}, 0)};
    case ScanOp::LogSumExp: return {scan_sample({3, 4}, 1)};
    case ScanOp::Max: return {scan_sample({2, 5, 2}, 1)};
    case ScanOp::Min: return {scan_sample({3, 5}, 1)};
  }
  return {};
}

template <ScanOp op>
const OpDef& scan_op() {
  constexpr bool reads_values = op == ScanOp::Product || op == ScanOp::LogSumExp;
  static const OpDef made{.name = scan_name(op),
                          .rule = scan_rule<op>,
                          .infer = scan_infer<op>,
                          .forward = scan_forward<op>,
                          .backward = scan_backward<op>,
                          .saves_in = reads_values ? 1U : 0U,
                          .saves_out = reads_values           ? 1U
                                       : scan_has_indices(op) ? 0b10U
                                                              : 0U,
                          .samples = scan_samples<op>};
  return made;
}

template <ScanOp op>
ValuesAndIndices scan(const Tensor& x, int dim) {
  const int along = normalize_dim_or_zero(dim, x.ndim(), scan_name(op));
  if (x.ndim() == 0) {
    const ValuesAndIndices of = scan<op>(unsqueeze(x, 0), 0);
    return {squeeze(of.values), of.indices.defined() ? squeeze(of.indices) : Tensor()};
  }
  auto out = call(scan_op<op>(), {&x, 1}, ScanAttrs{.dim = along, .reverse = false});
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  return scan<ScanOp::Sum>(as_sum_dtype(x), dim).values;
}
Tensor cumprod(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  return scan<ScanOp::Product>(as_sum_dtype(x), dim).values;
}
Tensor logcumsumexp(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  return scan<ScanOp::LogSumExp>(x, dim).values;
}
ValuesAndIndices cummax(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  return scan<ScanOp::Max>(x, dim);
}
ValuesAndIndices cummin(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  return scan<ScanOp::Min>(x, dim);
}

std::span<const OpDef* const> scan_ops() {
  static const OpDef* const ops[] = {&scan_op<ScanOp::Sum>(),
                                     &scan_op<ScanOp::Product>(),
                                     &scan_op<ScanOp::LogSumExp>(),
                                     &scan_op<ScanOp::Max>(),
                                     &scan_op<ScanOp::Min>(),
                                     &scan_backward_op<ScanOp::Product>(),
                                     &scan_backward_op<ScanOp::LogSumExp>()};
  return ops;
}

}  // namespace coshard
