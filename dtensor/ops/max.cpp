#include <bit>

#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// out: values, indices into the flattened dimensions of the mask
std::vector<TensorInfo> max_infer(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<MaxAttrs>();
  const Shape out = remaining(in[0].shape, a.mask, a.keepdim);
  CS_REQUIRE(numel(out) == 0 || count_over(in[0].shape, a.mask) > 0, a.largest ? "max" : "min",
             ": a reduced dimension of ", in[0].shape, " is empty");
  return {{out, in[0].dtype}, {out, DType::I64}};
}

Rule max_rule(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<MaxAttrs>();
  const std::string all = axes(in[0].shape.size());
  const std::string out = remaining_axes(all, a.mask, a.keepdim);
  Rule rule;
  rule.in = {whole_axes(all, a.mask)};
  rule.out = {out, out};
  rule.strided = true;
  return rule;
}

void max_forward(OpContext& c) {
  const auto a = c.attrs.as<MaxAttrs>();
  const MaskedLines lines = masked_lines(c.in[0], a.mask);
  void* values = c.make(0).address();
  void* indices = c.make(1).address();
  launch(c, kernels::ArgReduce{a.largest, lines.x.dtype(), lines.n.outer, lines.n.extent,
                               lines.n.inner, lines.x.const_data(), values, indices});
}

// Only for a reduction over one dimension, as by `max` and `min`.
void max_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Shape& shape = c.in_info[0].shape;
  if (shape.empty()) return c.sink.accumulate(0, c.out_grad[0]);
  const auto a = c.attrs.as<MaxAttrs>();
  const int dim = std::countr_zero(static_cast<std::uint64_t>(a.mask));
  const Tensor index = a.keepdim ? c.out[1] : unsqueeze(c.out[1], dim);
  const Tensor dy = a.keepdim ? c.out_grad[0] : unsqueeze(c.out_grad[0], dim);
  c.sink.accumulate(0, scatter_add_zeros(shape, dim, index, dy, a.cuts));
}

[[gnu::cold]] std::vector<OpDef::Sample> max_samples() {
  return {{{input({3, 5})}, MaxAttrs{true, 0b10, false, 0}},
          {{input({2, 3, 4})}, MaxAttrs{false, 0b010, true, 0}},
          {{input({5, 2})}, MaxAttrs{true, 0b01, false, 0}}};
}

const OpDef& max_op() {
  static const OpDef op{.name = "max",
                        .rule = max_rule,
                        .infer = max_infer,
                        .forward = max_forward,
                        .backward = max_backward,
                        .saves_in = 0,
                        .saves_out = 0b10,
                        .samples = max_samples};
  return op;
}

// --- along a sharded dimension: each part's extreme and its index, as a pair in one tensor, then
// the extreme of all parts ---

DType pair_dtype(DType dtype) {
  if (is_float8(dtype)) fail_without_arithmetic(dtype);
  return is_floating(dtype) ? DType::F64 : DType::I64;
}

struct MaxOfPartsAttrs {
  bool largest;
  int dim;
  std::int64_t parts;
};

// out: [2, shape of x with `parts` for the dimension], values first. The dimension has as many
// shards.
std::vector<TensorInfo> max_of_parts_infer(Infos in, const Attrs& attrs) {
  Shape out = in[0].shape;
  const auto a = attrs.as<MaxOfPartsAttrs>();
  out[static_cast<std::size_t>(a.dim)] = a.parts;
  out.insert(0, 2);
  return {{out, pair_dtype(in[0].dtype)}};
}

Rule max_of_parts_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in = {axes(in[0].shape.size())};
  rule.out = {'.' + rule.in[0]};
  rule.strided = true;
  return rule;
}

void max_of_parts_forward(OpContext& c) {
  const auto a = c.attrs.as<MaxOfPartsAttrs>();
  const Tensor x = local_contiguous(c.in[0]);
  const Lines n = lines_of(x.local_shape(), a.dim);
  const Tensor pairs = c.make();
  if (n.extent == 0 || pairs.local_numel() == 0) return;
  const Shape lines{n.outer * n.inner};
  const Tensor value = Tensor::empty(x.device(), lines, x.dtype());
  const Tensor index = Tensor::empty(x.device(), lines, DType::I64);
  launch(c, kernels::ArgReduce{a.largest, x.dtype(), n.outer, n.extent, n.inner, x.const_data(),
                               value.address(), index.address()});
  const Tensor placed = Tensor::empty(x.device(), lines, DType::I64);
  launch(c, kernels::Binary{kernels::BinaryOp::Sub,
                            view_of(placed),
                            view_of(index),
                            {},
                            -static_cast<double>(c.offset(0, a.dim))});
  const auto half = [&](std::int64_t which) {
    return view_of(pairs.view_as(lines, {1}, which * lines[0], nullptr));
  };
  launch(c, kernels::Copy{half(0), view_of(value)});
  launch(c, kernels::Copy{half(1), view_of(placed)});
}

const OpDef& max_of_parts_op() {
  static const OpDef op{.name = "max_of_parts",
                        .rule = max_of_parts_rule,
                        .infer = max_of_parts_infer,
                        .forward = max_of_parts_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

// in: x (for its layout and its gradient), pairs; attrs and out: as `max`
std::vector<TensorInfo> max_of_pairs_infer(Infos in, const Attrs& attrs) {
  return max_infer(in.first(1), attrs);
}

Rule max_of_pairs_rule(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<MaxAttrs>();
  const std::string all = axes(in[0].shape.size());
  const std::string out = remaining_axes(all, a.mask, a.keepdim);
  Rule rule;
  rule.in = {"*", '.' + whole_axes(all, a.mask)};
  rule.out = {out, out};
  rule.strided = true;
  return rule;
}

void max_of_pairs_forward(OpContext& c) {
  const Tensor pairs = local_contiguous(c.in[1]);
  const auto a = c.attrs.as<MaxAttrs>();
  const int dim = std::countr_zero(static_cast<std::uint64_t>(a.mask)) + 1;
  const Lines n = lines_of(pairs.local_shape(), dim);  // outer counts both halves
  const Tensor &values = c.make(0), &indices = c.make(1);
  if (values.local_numel() == 0) return;
  const Shape lines{n.outer / 2, 1, n.inner};
  const Strides along{n.extent * n.inner, n.inner, 1};
  const auto empty = [&](DType dtype) { return Tensor::empty(pairs.device(), lines, dtype); };
  const Tensor value = empty(pairs.dtype()), part = empty(DType::I64), index = empty(pairs.dtype());
  launch(c, kernels::ArgReduce{a.largest, pairs.dtype(), n.outer / 2, n.extent, n.inner,
                               pairs.const_data(), value.address(), part.address()});
  const Tensor second = pairs.view_as({n.outer / 2, n.extent, n.inner}, along,
                                      n.outer / 2 * n.extent * n.inner, nullptr);
  launch(c, kernels::Gather{view_of(index), view_of(second), view_of(part), 1});
  launch(c, kernels::Copy{view_of(values, lines, row_major(lines)), view_of(value)});
  launch(c, kernels::Copy{view_of(indices, lines, row_major(lines)), view_of(index)});
}

const OpDef& max_of_pairs_op() {
  static const OpDef op{.name = "max_of_pairs",
                        .rule = max_of_pairs_rule,
                        .infer = max_of_pairs_infer,
                        .forward = max_of_pairs_forward,
                        .backward = max_backward,
                        .saves_in = 0,
                        .saves_out = 0b10,
                        .samples = no_samples};
  return op;
}

// How the mesh shards a dimension.
struct CutAlong {
  std::int64_t cuts = 0;   // the mesh dimensions that shard it, as bits
  std::int64_t parts = 0;  // that have elements; 0: their pairs would not be sharded alike
};
CutAlong cut_along(const Tensor& x, std::int64_t mask) {
  if (!x.is_distributed() || !std::has_single_bit(static_cast<std::uint64_t>(mask))) return {};
  const int dim = std::countr_zero(static_cast<std::uint64_t>(mask));
  CutAlong cut{0, 1};
  std::int64_t largest = x.size(dim), smallest = largest;
  for (int m = 0; m < x.layout().ndim(); ++m) {
    const Placement& p = x.layout()[m];
    if (p.is_partial() || (p.is_strided() && p.dim == dim)) return {};
    if (!p.is_shard(dim)) continue;
    if (cut.cuts != 0 && smallest == 0) return {};
    const int n = x.mesh().size(m);
    largest = chunk_of(largest, n, 0).size;
    smallest = chunk_of(smallest, n, n - 1).size;
    cut.parts *= n;
    cut.cuts |= std::int64_t{1} << m;
  }
  if (smallest > 0) return cut;
  const bool once = std::has_single_bit(static_cast<std::uint64_t>(cut.cuts)) && largest > 0;
  cut.parts = once ? (x.size(dim) + largest - 1) / largest : 0;
  return cut;
}

ValuesAndIndices max_call(const Tensor& x, bool largest, const Dims& dims, bool keepdim,
                          const char* name) {
  const std::int64_t mask = dims.mask(x.ndim(), name);
  const CutAlong cut = cut_along(x, mask);
  const MaxAttrs attrs{.largest = largest, .mask = mask, .keepdim = keepdim, .cuts = cut.cuts};
  if (cut.cuts == 0 || cut.parts == 0) {
    auto out = call(max_op(), {&x, 1}, attrs);
    return {std::move(out[0]), std::move(out[1])};
  }
  const int dim = std::countr_zero(static_cast<std::uint64_t>(mask));
  Tensor in[] = {x, Tensor()};
  in[1] = call1(max_of_parts_op(), {x.detach()}, MaxOfPartsAttrs{largest, dim, cut.parts});
  auto out = call(max_of_pairs_op(), in, attrs);
  return {std::move(out[0]), std::move(out[1])};
}

Tensor arg_call(const Tensor& x, bool largest, std::optional<int> dim, bool keepdim,
                const char* name) {
  const NoGradGuard no_gradient;
  return max_call(x, largest, dim ? Dims(*dim) : Dims(), keepdim, name).indices;
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return arg_call(x, true, dim, keepdim, "argmax");
}
Tensor argmin(const Tensor& x, std::optional<int> dim, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return arg_call(x, false, dim, keepdim, "argmin");
}
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return max_call(x, true, dim, keepdim, "max");
}
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return max_call(x, false, dim, keepdim, "min");
}

std::span<const OpDef* const> max_ops() {
  static const OpDef* const ops[] = {&max_op(), &max_of_parts_op(), &max_of_pairs_op()};
  return ops;
}

}  // namespace coshard
