#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void gather_check_index(const char* op, const TensorInfo& index, std::size_t ndim) {
  CS_REQUIRE(index.dtype == DType::I64 || index.dtype == DType::I32, op,
             ": index must be i64 or i32, got ", index.dtype);
  CS_REQUIRE(index.shape.size() == ndim, op, ": index ", index.shape, " must have ", ndim,
             " dimensions, as the tensor has");
}

// The index on a rank that holds part of the indexed dimension: positions clamped to that part, and
// whether they were inside it.
struct OwnIndex {
  Tensor at, inside;
};
OwnIndex own_index(const OpContext& c, const Tensor& index, std::int64_t limit, std::int64_t first,
                   std::int64_t count) {
  const Tensor all = local_contiguous(index).raw_local();
  launch(c, kernels::CheckIndex{DeviceAssertKind::GatherIndex, all.dtype(), all.local_numel(),
                                limit, all.const_data()});
  const auto empty = [&all](DType dtype) {
    return Tensor::empty(all.device(), all.local_shape(), dtype);
  };
  const Tensor from_first = empty(all.dtype());
  const OwnIndex own{empty(all.dtype()), empty(DType::Bool)};
  launch(c, kernels::Binary{kernels::BinaryOp::Sub,
                            view_of(from_first),
                            view_of(all),
                            {},
                            static_cast<double>(first)});
  launch(c, kernels::Unary{kernels::UnaryOp::Clamp, all.dtype(), all.local_numel(),
                           from_first.const_data(), own.at.address(), 0,
                           static_cast<double>(std::max<std::int64_t>(count - 1, 0))});
  launch(c, kernels::Binary{kernels::BinaryOp::Eq, view_of(own.inside), view_of(from_first),
                            view_of(own.at)});
  return own;
}

// --- gather: the sizes agree in all dimensions but one ---

std::vector<TensorInfo> gather_infer(Infos in, const Attrs& attrs) {
  gather_check_index("gather", in[1], in[0].shape.size());
  Shape rest = in[0].shape;
  const auto dim = static_cast<std::size_t>(attrs.as<GatherAttrs>().dim);
  rest[dim] = in[1].shape[dim];
  CS_REQUIRE(rest == in[1].shape, "gather: index ", in[1].shape, " does not match ", in[0].shape,
             " outside dimension ", dim);
  return {{in[1].shape, in[0].dtype}};
}

Rule gather_rule(Infos in, const Attrs& attrs) {
  const int dim = attrs.as<GatherAttrs>().dim;
  Rule rule;
  const std::string text = axes(in[1].shape.size());
  std::string lines = text;
  lines[static_cast<std::size_t>(dim)] = '.';
  rule.in = {lines, text};
  rule.out = {text};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kMoving);
  if (in[0].dtype != DType::Bool)
    rule.extra.push_back({{Shard(dim), Replicate()}, {Partial(Reduce::Sum)}});
  return rule;
}

// Elements on other ranks count as 0.
void gather_own(OpContext& c, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  const Tensor& x = c.in[0];
  const std::int64_t count = x.local_shape()[d];
  const OwnIndex own = own_index(c, c.in[1], x.shape()[d], c.offset(0, dim), count);
  const Tensor& y = c.make();
  if (count == 0) {
    launch(c, kernels::Fill{y.address(), y.dtype(), y.local_numel(), 0});
    return;
  }
  const Tensor found = Tensor::empty(x.device(), c.out_shape[0], x.dtype());
  launch(c, kernels::Gather{view_of(found), view_of(x), view_of(own.at), dim});
  launch(c, kernels::Where{view_of(y), view_of(own.inside), view_of(found)});
}

void gather_forward(OpContext& c) {
  const int dim = c.attrs.as<GatherAttrs>().dim;
  const auto d = static_cast<std::size_t>(dim);
  if (c.in[0].local_shape()[d] != c.in[0].shape()[d]) return gather_own(c, dim);
  const Tensor& y = c.make();
  launch(c, kernels::Gather{view_of(y), view_of(c.in[0]), view_of(c.in[1]), dim});
}

void gather_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const auto a = c.attrs.as<GatherAttrs>();
  c.sink.accumulate(0,
                    scatter_add_zeros(c.in_info[0].shape, a.dim, c.in[1], c.out_grad[0], a.cuts));
}

[[gnu::cold]] std::vector<OpDef::Sample> gather_samples() {
  return {{{input({3, 5}), input({4, 5}, DType::I64)}, GatherAttrs{0, 0}, -2, 2, 3},
          {{input({2, 4, 3}), input({2, 5, 3}, DType::I32)}, GatherAttrs{1, 0}}};
}

const OpDef& gather_op() {
  static const OpDef op{.name = "gather",
                        .rule = gather_rule,
                        .infer = gather_infer,
                        .forward = gather_forward,
                        .backward = gather_backward,
                        .saves_in = 2,
                        .saves_out = 0,
                        .samples = gather_samples};
  return op;
}

// --- scatter_add_zeros, its adjoint: (src, index, like) ---
// `like` only gives a layout: if it is sharded along the dimension and src and index are not, so is
// the result.

std::vector<TensorInfo> add_zeros_infer(Infos in, const Attrs& attrs) {
  const auto [dim, out] = attrs.as<ScatterAddZerosAttrs>();
  gather_check_index("scatter_add", in[1], out.size());
  CS_REQUIRE(in[0].shape == in[1].shape, "scatter_add: shapes differ: src ", in[0].shape,
             " and index ", in[1].shape);
  CS_REQUIRE(in[0].dtype != DType::Bool, "scatter_add does not support bool, got bool",
             in[0].shape);
  for (std::size_t d = 0; d < out.size(); ++d)
    CS_REQUIRE(static_cast<int>(d) == dim || in[1].shape[d] <= out[d], "scatter_add: index ",
               in[1].shape, " into ", out, " along dimension ", dim);
  return {{out, in[0].dtype}};
}

// Sharding the indexed dimension of src and index gives a Partial: every rank adds what it holds.
Rule add_zeros_rule(Infos in, const Attrs& attrs) {
  const auto [dim, out] = attrs.as<ScatterAddZerosAttrs>();
  Rule rule;
  std::string text = axes(out.size());
  std::string lines = text;
  for (std::size_t d = 0; d < out.size(); ++d) {
    const bool indexed = static_cast<int>(d) == dim;
    if (indexed || out[d] != in[1].shape[d]) lines[d] = '.';
    if (!indexed && lines[d] == '.') text[d] = '.';
  }
  rule.in = {text, text, in[2].defined ? "*" : ""};
  rule.out = {lines};
  rule.strided = true;
  const Placement own = Shard(dim);
  if (in[2].defined) rule.extra.push_back({{Replicate(), Replicate(), own}, {own}});
  pass_partial(rule, "PRR", "P", kLinear);
  return rule;
}

void add_zeros_forward(OpContext& c) {
  const int dim = c.attrs.as<ScatterAddZerosAttrs>().dim;
  const auto d = static_cast<std::size_t>(dim);
  const Tensor& y = c.make();
  launch(c, kernels::Fill{y.address(), y.dtype(), y.local_numel(), 0});
  if (!c.out_spec[0] || c.out_shape[0][d] == c.out_spec[0]->shape[d]) {
    launch(c, kernels::Scatter{view_of(y), view_of(c.in[0]), view_of(c.in[1]), dim, true});
    return;
  }
  // This rank's part of the dimension: what belongs to other ranks is added as 0.
  const OwnIndex own =
      own_index(c, c.in[1], c.out_spec[0]->shape[d], c.out_spec[0]->offset[d], c.out_shape[0][d]);
  if (c.out_shape[0][d] == 0) return;
  const Tensor& src = c.in[0];
  const Tensor mine = Tensor::empty(src.device(), src.local_shape(), src.dtype());
  launch(c, kernels::Where{view_of(mine), view_of(own.inside), view_of(src)});
  launch(c, kernels::Scatter{view_of(y), view_of(mine), view_of(own.at), dim, true});
}

void add_zeros_backward(GradContext& c) {
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, gather(c.out_grad[0], c.attrs.as<ScatterAddZerosAttrs>().dim, c.in[1]));
}

[[gnu::cold]] std::vector<OpDef::Sample> add_zeros_samples() {
  const TensorInfo matrix = input({4, 5}), cube = input({2, 5, 3});
  const TensorInfo rows = input({4, 5}, DType::I64), columns = input({2, 5, 3}, DType::I64);
  return {{{matrix, rows, absent()}, ScatterAddZerosAttrs{0, {3, 5}}, -2, 2, 3},
          {{cube, columns, absent()}, ScatterAddZerosAttrs{1, {3, 4, 3}}}};
}

const OpDef& add_zeros_op() {
  static const OpDef op{.name = "scatter_add_zeros",
                        .rule = add_zeros_rule,
                        .infer = add_zeros_infer,
                        .forward = add_zeros_forward,
                        .backward = add_zeros_backward,
                        .saves_in = 2,
                        .saves_out = 0,
                        .samples = add_zeros_samples};
  return op;
}

// The mesh dimensions that shard `dim` of x, as bits.
std::int64_t cuts_of(const Tensor& x, int dim) {
  std::int64_t cuts = 0;
  for (int m = 0; x.is_distributed() && m < x.layout().ndim(); ++m)
    if (x.layout()[m].is_shard(dim)) cuts |= std::int64_t{1} << m;
  return cuts;
}

// A tensor of `shape` sharded over `cuts` that needs no memory: one element, broadcast.
Tensor like_cut(const Tensor& on_mesh, const Shape& shape, int dim, std::int64_t cuts) {
  Layout layout = Layout::filled(on_mesh.mesh().ndim(), Replicate());
  for (int m = 0; m < layout.ndim(); ++m)
    if ((cuts >> m & 1) != 0) layout[m] = Shard(dim);
  const auto spec = make_spec(on_mesh.mesh(), layout, shape);
  const Tensor one = Tensor::empty(on_mesh.device(), Shape{1}, DType::Bool);
  return one.view_as(spec->local_shape, Strides::filled(spec->local_shape.size(), 0), 0, spec);
}

}  // namespace

Tensor cropped(const Tensor& x, const Shape& shape, int but_dim, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(static_cast<std::size_t>(x.ndim()) == shape.size(), "index ", shape,
             " must have as many dimensions as ", x);
  Tensor part = x;
  for (int d = 0; d < x.ndim(); ++d) {
    const std::int64_t size = shape[static_cast<std::size_t>(d)];
    if (d != but_dim && size < x.size(d)) part = slice(part, d, 0, size);
  }
  return part;
}

Tensor gather(const Tensor& x, int dim, const Tensor& index, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "gather");
  return call1(gather_op(), {cropped(x, index.shape(), along), index},
               GatherAttrs{.dim = along, .cuts = cuts_of(x, along)});
}

Tensor scatter_add_zeros(const Shape& shape, int dim, const Tensor& index, const Tensor& src,
                         std::int64_t cuts, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, static_cast<int>(shape.size()), "scatter_add");
  Tensor like;
  if (cuts != 0 && index.is_distributed()) like = like_cut(index, shape, along, cuts);
  return call1(add_zeros_op(), {cropped(src, index.shape(), -1), index, like},
               ScatterAddZerosAttrs{.dim = along, .shape = shape});
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                   CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.dtype() == src.dtype(), "scatter_add: dtypes differ: src ", src, " into ", x);
  const int along = normalize_dim(dim, x.ndim(), "scatter_add");
  return add(x, scatter_add_zeros(x.shape(), along, index, src, cuts_of(x, along)));
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "index_select");
  CS_REQUIRE(index.ndim() == 1, "index_select: index must have 1 dimension, got ", index, " for ",
             x);
  Shape line = Shape::filled(static_cast<std::size_t>(x.ndim()), 1);
  line[static_cast<std::size_t>(along)] = index.size(0);
  Shape all = x.shape();
  all[static_cast<std::size_t>(along)] = index.size(0);
  return gather(x, along, expand(view(index, line), all));
}

std::span<const OpDef* const> gather_ops() {
  static const OpDef* const ops[] = {&gather_op(), &add_zeros_op()};
  return ops;
}

}  // namespace coshard
