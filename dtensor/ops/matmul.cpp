#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/products.h"
#include "dtensor/ops/writes.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

bool shared(const TensorInfo& b) { return b.shape.size() == 2; }

Shape leading(const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); }

Rule matmul_rule(Infos in, const Attrs&) {
  const Shape lead = broadcast(leading(in[0].shape), leading(in[1].shape), "matmul");
  Rule rule;
  rule.in = {broadcast_axes(leading(in[0].shape), lead) + "wy",
             broadcast_axes(leading(in[1].shape), lead) + "yz"};
  rule.out = {axes(lead.size()) + "wz"};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kLinear);
  pass_partial(rule, "RP", "P", kLinear);
  return rule;
}

std::vector<TensorInfo> matmul_infer(Infos in, const Attrs&) {
  const Shape& a = in[0].shape;
  const Shape& b = in[1].shape;
  CS_REQUIRE(in[0].dtype != DType::Bool, "matmul does not support bool: ", a, " @ ", b);
  require_same_dtype("matmul", in[0], in[1]);
  CS_REQUIRE(a.size() >= 2 && b.size() >= 2, "matmul: ", a, " @ ", b,
             ": both need at least 2 dimensions");
  CS_REQUIRE(a[a.size() - 1] == b[b.size() - 2], "matmul: inner dimensions differ: ", a, " @ ", b);
  Shape out = broadcast(leading(a), leading(b), "matmul");
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return {{out, in[0].dtype}};
}

// The local tensor with its leading dimensions broadcast to those of `out`.
Tensor stretched(const Tensor& x, const Shape& out) {
  Shape shape = leading(out);
  const std::size_t lead = shape.size() + 2 - x.local_shape().size();
  Strides strides = Strides::filled(out.size(), 0);
  shape.push_back(x.local_shape()[x.local_shape().size() - 2]);
  shape.push_back(x.local_shape().back());
  if (shape == x.local_shape()) return x;
  for (std::size_t i = lead; i < shape.size(); ++i)
    if (x.local_shape()[i - lead] == shape[i]) strides[i] = x.strides()[i - lead];
  return x.view_as(shape, strides, x.storage_offset(), nullptr);
}

void matmul_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  const bool flat = c.in[1].ndim() == 2;
  const Tensor a = flat ? matrix_of(c.in[0]) : batch_of(stretched(c.in[0], shape));
  const Tensor b = flat ? matrix_of(c.in[1]) : batch_of(stretched(c.in[1], shape));
  const Tensor out = flat ? matrix_of(c.make()) : batch_of(c.make());
  launch(c, kernels::Matmul{view_of(out), view_of(a), view_of(b)});
}

void matmul_backward(GradContext& c) {
  const Tensor a = c.in[0];
  const Tensor b = c.in[1];
  const Tensor dy = c.out_grad[0];
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, sum_to(matmul(dy, transpose(b, -2, -1)), c.in_info[0].shape));
  if (!c.sink.needs_grad(1)) return;
  if (!shared(c.in_info[1])) {
    const Shape shape = c.in_info[1].shape;
    c.sink.defer(1, [=] { return sum_to(matmul(transpose(a, -2, -1), dy), shape); });
  } else if (!b.is_distributed() && b.strides()[0] == 1 && b.strides()[1] != 1) {
    // b is a transposed view: its gradient gets the same memory order. Not for a DTensor: its
    // strides may differ between ranks, and then the collectives would, too.
    c.sink.defer(1, [=] { return transpose(matmul_rows(dy, a), 0, 1); });
  } else {
    c.sink.defer(1, [=] { return matmul_rows(a, dy); });
  }
}

[[gnu::cold]] std::vector<OpDef::Sample> matmul_samples() {
  return {{{input({3, 5}), input({5, 6})}, {}},
          {{input({2, 3, 5}), input({5, 4})}, {}},
          {{input({3, 2, 5}), input({3, 5, 4})}, {}},
          {{input({3, 5}), input({2, 5, 4})}, {}},
          {{input({3, 1, 2, 2}), input({2, 2, 3})}, {}}};
}

const OpDef& matmul_op() {
  static const OpDef op{.name = "matmul",
                        .rule = matmul_rule,
                        .infer = matmul_infer,
                        .forward = matmul_forward,
                        .backward = matmul_backward,
                        .compute = ComputeClass::Gemm,
                        .saves_out = 0,
                        .samples = matmul_samples};
  return op;
}

// --- a^T @ b over all rows: the gradient of a weight ---

Rule matmul_rows_rule(Infos in, const Attrs&) {
  const std::string rows = axes(in[0].shape.size() - 1);
  Rule rule;
  rule.in = {rows + "y", rows + "z"};
  rule.out = {"yz"};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kLinear);
  pass_partial(rule, "RP", "P", kLinear);
  return rule;
}

std::vector<TensorInfo> matmul_rows_infer(Infos in, const Attrs&) {
  const Shape& a = in[0].shape;
  const Shape& b = in[1].shape;
  require_floating("matmul_rows", in[0]);
  require_same_dtype("matmul_rows", in[0], in[1]);
  CS_REQUIRE(a.size() >= 2 && a.size() == b.size() &&
                 Shape(a.begin(), a.end() - 1) == Shape(b.begin(), b.end() - 1),
             "matmul_rows: rows differ: ", a, " and ", b);
  return {{{a.back(), b.back()}, in[0].dtype}};
}

void matmul_rows_forward(OpContext& c) {
  const Tensor a = matrix_of(c.in[0]);
  const Tensor b = matrix_of(c.in[1]);
  launch(c, kernels::Matmul{view_of(c.make()), transposed(view_of(a)), view_of(b)});
}

void matmul_rows_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, matmul(c.in[1], transpose(c.out_grad[0], 0, 1)));
  if (c.sink.needs_grad(1)) c.sink.accumulate(1, matmul(c.in[0], c.out_grad[0]));
}

[[gnu::cold]] std::vector<OpDef::Sample> matmul_rows_samples() {
  return {{{input({5, 3}), input({5, 4})}, {}}, {{input({2, 5, 3}), input({2, 5, 4})}, {}}};
}

const OpDef& matmul_rows_op() {
  static const OpDef op{.name = "matmul_rows",
                        .rule = matmul_rows_rule,
                        .infer = matmul_rows_infer,
                        .forward = matmul_rows_forward,
                        .backward = matmul_rows_backward,
                        .compute = ComputeClass::Gemm,
                        .saves_out = 0,
                        .samples = matmul_rows_samples};
  return op;
}

// The last two dimensions with a unit stride, as the kernel needs them; any stride for dimensions
// of size 1.
std::optional<Strides> matrix_strides(const Shape& shape, Strides strides) {
  const std::size_t row = shape.size() - 2;
  const std::size_t column = row + 1;
  if (shape[column] <= 1)
    strides[column] = strides[row] == 1 ? std::max<std::int64_t>(shape[row], 1) : 1;
  if (shape[row] <= 1)
    strides[row] = strides[column] == 1 ? std::max<std::int64_t>(shape[column], 1) : 1;
  if (strides[row] != 1 && strides[column] != 1) return std::nullopt;
  if (strides[row] == 0 || strides[column] == 0) return std::nullopt;
  return strides;
}

// Strides of a view of that shape that the kernel can read, if there is one.
std::optional<Strides> unit_strides(const Tensor& tensor, const Shape& shape) {
  const auto view = view_strides(tensor.local_shape(), tensor.strides(), shape);
  return view ? matrix_strides(shape, *view) : std::nullopt;
}

Tensor with_unit_stride(const Tensor& tensor, const Shape& shape) {
  if (const auto strides = unit_strides(tensor, shape))
    return tensor.view_as(shape, *strides, tensor.storage_offset(), nullptr);
  const Tensor copy = local_contiguous(tensor);
  return copy.view_as(shape, row_major(shape), copy.storage_offset(), nullptr);
}

Shape matrix_shape(const Tensor& local) {
  const Shape& shape = local.local_shape();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return {rows, shape.back()};
}

}  // namespace

Tensor matrix_of(const Tensor& local) { return with_unit_stride(local, matrix_shape(local)); }

Tensor batch_of(const Tensor& local) {
  const Shape& shape = local.local_shape();
  std::int64_t batch = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) batch *= shape[i];
  return with_unit_stride(local, {batch, shape[shape.size() - 2], shape.back()});
}

Tensor batch_of(const Tensor& local, const Shape& shape) { return with_unit_stride(local, shape); }

Shape batch_shape(const Tensor& local) {
  const Shape& sizes = local.local_shape();
  const Shape flat = matrix_shape(local);
  Shape shape{1, flat[0], flat[1]};
  for (std::size_t i = 0; i + 2 < sizes.size() && !unit_strides(local, shape); ++i)
    shape[0] *= sizes[i], shape[1] /= sizes[i];
  return shape;
}

void matmul_into(const Tensor& into, const Tensor& a, const Tensor& b, bool accumulate) {
  CS_REQUIRE(!into.is_distributed() && !a.is_distributed() && !b.is_distributed(),
             "matmul_into: plain tensors only, got ", into, ", ", a, ", ", b);
  const TensorInfo infos[] = {{a.shape(), a.dtype()}, {b.shape(), b.dtype()}};
  const TensorInfo out = matmul_infer(infos, {}).front();
  CS_REQUIRE(out.shape == into.shape() && out.dtype == into.dtype(), "matmul_into: ", a, " @ ", b,
             " does not fit ", into);
  require_writable(into, "matmul_into");
  CS_REQUIRE(!grad_enabled() || !into.requires_grad(), "matmul_into: ", into,
             " requires a gradient, but matmul_into is not differentiable");
  into.mark_written();
  const bool flat = b.ndim() == 2;
  const Tensor to = flat ? matrix_of(into) : batch_of(into);
  CS_REQUIRE(to.storage() == into.storage(), "matmul_into: ", into, " is not a view of rows");
  const Tensor left = flat ? matrix_of(a) : batch_of(stretched(a, into.shape()));
  const Tensor right = flat ? matrix_of(b) : batch_of(stretched(b, into.shape()));
  kernels::run(*into.device(), kernels::Matmul{view_of(to), view_of(left), view_of(right), 1,
                                               accumulate ? 1.0 : 0.0});
}

kernels::View transposed(kernels::View matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

Tensor matmul(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  if (a.ndim() > 1 && b.ndim() > 1) return call1(matmul_op(), {a, b});
  CS_REQUIRE(a.ndim() > 0 && b.ndim() > 0, "matmul: ", a, " @ ", b,
             ": both need at least 1 dimension");
  const Tensor left = a.ndim() > 1 ? a : view(a, Shape{1, a.size(0)});
  const Tensor right = b.ndim() > 1 ? b : view(b, Shape{b.size(0), 1});
  const Tensor y = call1(matmul_op(), {left, right});
  Shape out = y.shape();
  if (b.ndim() == 1) out.pop_back();
  if (a.ndim() == 1) out.erase(out.size() - (b.ndim() == 1 ? 1 : 2));
  return view(y, out);
}
Tensor matmul_rows(const Tensor& a, const Tensor& b) { return call1(matmul_rows_op(), {a, b}); }

std::span<const OpDef* const> matmul_ops() {
  static const OpDef* const ops[] = {&matmul_op(), &matmul_rows_op()};
  return ops;
}

}  // namespace coshard
