#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ScanOp;

// attrs.ints: the kernel's operation, dimension, whether it runs from the end
ScanOp scan_op_of(const Attrs& attrs) { return static_cast<ScanOp>(attrs.ints[0]); }
std::int64_t scan_mask(const Attrs& attrs) { return std::int64_t{1} << attrs.ints[1]; }
bool scan_has_indices(ScanOp op) { return op == ScanOp::Max || op == ScanOp::Min; }

std::vector<TensorInfo> scan_infer(Infos in, const Attrs& attrs) {
  const ScanOp op = scan_op_of(attrs);
  if (op == ScanOp::LogSumExp) require_floating("logcumsumexp", in[0]);
  std::vector<TensorInfo> out{in[0]};
  if (scan_has_indices(op)) out.push_back({in[0].shape, DType::I64});
  return out;
}

// The dimension stays whole in all inputs and outputs.
Rule scan_rule_of(std::size_t inputs, std::size_t outputs, std::size_t ndim, const Attrs& attrs) {
  const std::string text = whole_letters(letters(ndim), scan_mask(attrs));
  Rule rule;
  rule.in.assign(inputs, text);
  rule.out.assign(outputs, text);
  rule.strided = true;
  return rule;
}

Rule scan_rule(Infos in, const Attrs& attrs) {
  const ScanOp op = scan_op_of(attrs);
  Rule rule = scan_rule_of(1, scan_has_indices(op) ? 2 : 1, in[0].shape.size(), attrs);
  if (op == ScanOp::Sum) pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void scan_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const Lines n = lines_of(x.local_shape(), static_cast<int>(c.attrs.ints[1]));
  void* y = c.make(0).data();
  void* indices = c.outputs == 2 ? c.make(1).data() : nullptr;
  launch(c, kernels::Scan{scan_op_of(c.attrs), c.attrs.ints[2] == 1, x.dtype(), n.outer, n.extent,
                          n.inner, x.data(), y, indices});
}

// --- gradient of products and logarithms --- in: dy, x, y; out: dx

Rule scan_backward_rule(Infos in, const Attrs& attrs) {
  Rule rule = scan_rule_of(3, 1, in[0].shape.size(), attrs);
  pass_partial(rule, "PRR", "P", kLinear);
  return rule;
}

void scan_backward_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor x = local_contiguous(c.in[1]);
  const Tensor y = local_contiguous(c.in[2]);
  const Lines n = lines_of(x.local_shape(), static_cast<int>(c.attrs.ints[1]));
  launch(c, kernels::ScanGrad{scan_op_of(c.attrs), x.dtype(), n.outer, n.extent, n.inner, dy.data(),
                              x.data(), y.data(), c.make().data()});
}

const OpDef& scan_backward_op() {
  static const OpDef op{.name = "scan_backward",
                        .rule = scan_backward_rule,
                        .infer = same_as_first,
                        .forward = scan_backward_forward,
                        .backward = nullptr,
                        .flops = one_per_element,
                        .samples = no_samples};
  return op;
}

const OpDef& scan_op();

void scan_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  const ScanOp op = scan_op_of(c.attrs);
  const Tensor& dy = c.out_grad[0];
  if (scan_has_indices(op)) {
    const int dim = static_cast<int>(c.attrs.ints[1]);
    c.sink.give(0, scatter_add_zeros(c.in_info[0].shape, dim, c.out[1], dy));
  } else if (op == ScanOp::Sum) {
    Attrs turned = c.attrs;
    turned.ints[2] = 1 - turned.ints[2];
    c.sink.give(0, call1(scan_op(), {dy}, turned));
  } else {
    c.sink.give(0, call1(scan_backward_op(), {dy, c.in[0], c.out[0]}, c.attrs));
  }
}

OpDef::Sample scan_sample(const Shape& shape, ScanOp op, int dim, bool reverse = false) {
  return {{input(shape)}, {{static_cast<std::int64_t>(op), dim, reverse}, {}}};
}

std::vector<OpDef::Sample> scan_samples() {
  return {scan_sample({3, 5}, ScanOp::Sum, 1),     scan_sample({2, 3, 2}, ScanOp::Sum, 1, true),
          scan_sample({5, 2}, ScanOp::Product, 0), scan_sample({3, 4}, ScanOp::LogSumExp, 1),
          scan_sample({2, 5, 2}, ScanOp::Max, 1),  scan_sample({3, 5}, ScanOp::Min, 1)};
}

const OpDef& scan_op() {
  static const OpDef op{.name = "scan",
                        .rule = scan_rule,
                        .infer = scan_infer,
                        .forward = scan_forward,
                        .backward = scan_backward,
                        .flops = one_per_element,
                        .samples = scan_samples};
  return op;
}

ValuesAndIndices scan(const Tensor& x, ScanOp op, int dim, const char* name) {
  const Attrs attrs{{static_cast<std::int64_t>(op), normalize_dim(dim, x.ndim(), name), 0}, {}};
  auto out = call(scan_op(), {&x, 1}, attrs);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return scan(as_sum_dtype(x), ScanOp::Sum, dim, "cumsum").values;
}
Tensor cumprod(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return scan(as_sum_dtype(x), ScanOp::Product, dim, "cumprod").values;
}
Tensor logcumsumexp(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return scan(x, ScanOp::LogSumExp, dim, "logcumsumexp").values;
}
ValuesAndIndices cummax(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return scan(x, ScanOp::Max, dim, "cummax");
}
ValuesAndIndices cummin(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return scan(x, ScanOp::Min, dim, "cummin");
}

std::span<const OpDef* const> scan_ops() {
  static const OpDef* const ops[] = {&scan_op(), &scan_backward_op()};
  return ops;
}

}  // namespace coshard
