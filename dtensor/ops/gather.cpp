#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void gather_check_index(const char* op, const TensorInfo& index, std::size_t ndim) {
  CS_REQUIRE(index.dtype == DType::I64 || index.dtype == DType::I32, op, ": an index of ",
             index.dtype);
  CS_REQUIRE(index.shape.size() == ndim, op, ": index ", index.shape, " for a tensor with ", ndim,
             " dimensions");
}

// --- gather: attrs.ints: dim; the sizes agree in all others ---

std::vector<TensorInfo> gather_infer(Infos in, const Attrs& attrs) {
  gather_check_index("gather", in[1], in[0].shape.size());
  Shape rest = in[0].shape;
  const auto dim = static_cast<std::size_t>(attrs.ints[0]);
  rest[dim] = in[1].shape[dim];
  CS_REQUIRE(rest == in[1].shape, "gather: index ", in[1].shape, " of ", in[0].shape,
             " along dimension ", dim);
  return {{in[1].shape, in[0].dtype}};
}

Rule gather_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  const std::string text = letters(in[1].shape.size());
  std::string lines = text;
  lines[static_cast<std::size_t>(attrs.ints[0])] = '.';
  rule.in = {lines, text};
  rule.out = {text};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kMoving);
  return rule;
}

void gather_forward(OpContext& c) {
  const Tensor& y = c.make();
  launch(c, kernels::Gather{view_of(y), view_of(c.in[0]), view_of(c.in[1]),
                            static_cast<int>(c.attrs.ints[0])});
}

void gather_backward(GradContext& c) {
  if (!c.sink.wants(0)) return;
  c.sink.give(0, scatter_add_zeros(c.in_info[0].shape, static_cast<int>(c.attrs.ints[0]), c.in[1],
                                   c.out_grad[0]));
}

std::vector<OpDef::Sample> gather_samples() {
  return {{{input({3, 5}), input({4, 5}, DType::I64)}, {{0}, {}}, -2, 2, 3},
          {{input({2, 4, 3}), input({2, 5, 3}, DType::I32)}, {{1}, {}}}};
}

const OpDef& gather_op() {
  static const OpDef op{.name = "gather",
                        .rule = gather_rule,
                        .infer = gather_infer,
                        .forward = gather_forward,
                        .backward = gather_backward,
                        .flops = no_flops,
                        .saves_in = 2,
                        .saves_out = 0,
                        .samples = gather_samples};
  return op;
}

// --- scatter_add_zeros, its adjoint: (src, index), attrs.ints: dim, shape of the result ---

Shape add_zeros_shape(const Attrs& attrs) { return {attrs.ints.begin() + 1, attrs.ints.end()}; }

std::vector<TensorInfo> add_zeros_infer(Infos in, const Attrs& attrs) {
  const Shape out = add_zeros_shape(attrs);
  gather_check_index("scatter_add", in[1], out.size());
  CS_REQUIRE(in[0].shape == in[1].shape, "scatter_add: src ", in[0].shape, " and index ",
             in[1].shape);
  CS_REQUIRE(in[0].dtype != DType::Bool, "scatter_add: of bool ", in[0].shape);
  for (std::size_t d = 0; d < out.size(); ++d)
    CS_REQUIRE(static_cast<std::int64_t>(d) == attrs.ints[0] || in[1].shape[d] <= out[d],
               "scatter_add: index ", in[1].shape, " into ", out, " along dimension ",
               attrs.ints[0]);
  return {{out, in[0].dtype}};
}

// Cutting the indexed dimension of src and index contracts: every rank adds up what it has.
Rule add_zeros_rule(Infos in, const Attrs& attrs) {
  const Shape out = add_zeros_shape(attrs);
  Rule rule;
  std::string text = letters(out.size());
  std::string lines = text;
  for (std::size_t d = 0; d < out.size(); ++d) {
    const bool indexed = static_cast<std::int64_t>(d) == attrs.ints[0];
    if (indexed || out[d] != in[1].shape[d]) lines[d] = '.';
    if (!indexed && lines[d] == '.') text[d] = '.';
  }
  rule.in = {text, text};
  rule.out = {lines};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

void add_zeros_forward(OpContext& c) {
  const Tensor& y = c.make();
  launch(c, kernels::Fill{y.data(), y.dtype(), y.local_numel(), 0});
  launch(c, kernels::Scatter{view_of(y), view_of(c.in[0]), view_of(c.in[1]),
                             static_cast<int>(c.attrs.ints[0]), true});
}

void add_zeros_backward(GradContext& c) {
  if (c.sink.wants(0))
    c.sink.give(0, gather(c.out_grad[0], static_cast<int>(c.attrs.ints[0]), c.in[1]));
}

std::vector<OpDef::Sample> add_zeros_samples() {
  return {{{input({4, 5}), input({4, 5}, DType::I64)}, {{0, 3, 5}, {}}, -2, 2, 3},
          {{input({2, 5, 3}), input({2, 5, 3}, DType::I64)}, {{1, 3, 4, 3}, {}}}};
}

const OpDef& add_zeros_op() {
  static const OpDef op{.name = "scatter_add_zeros",
                        .rule = add_zeros_rule,
                        .infer = add_zeros_infer,
                        .forward = add_zeros_forward,
                        .backward = add_zeros_backward,
                        .flops = no_flops,
                        .saves_in = 2,
                        .saves_out = 0,
                        .samples = add_zeros_samples};
  return op;
}

}  // namespace

Tensor cropped(const Tensor& x, const Shape& shape, int but_dim, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(static_cast<std::size_t>(x.ndim()) == shape.size(), "an index ", shape, " of ", x);
  Tensor part = x;
  for (int d = 0; d < x.ndim(); ++d)
    if (d != but_dim) part = slice(part, d, 0, shape[static_cast<std::size_t>(d)]);
  return part;
}

Tensor gather(const Tensor& x, int dim, const Tensor& index, CallSite site) {
  const UserCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "gather");
  return call1(gather_op(), {cropped(x, index.shape(), along), index}, {{along}, {}});
}

Tensor scatter_add_zeros(const Shape& shape, int dim, const Tensor& index, const Tensor& src,
                         CallSite site) {
  const UserCall user(site);
  Attrs attrs;
  attrs.ints.push_back(normalize_dim(dim, static_cast<int>(shape.size()), "scatter_add"));
  for (auto size : shape) attrs.ints.push_back(size);
  return call1(add_zeros_op(), {cropped(src, index.shape(), -1), index}, attrs);
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                   CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(x.dtype() == src.dtype(), "scatter_add: ", src, " into ", x);
  return add(x, scatter_add_zeros(x.shape(), dim, index, src));
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index, CallSite site) {
  const UserCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "index_select");
  CS_REQUIRE(index.ndim() == 1, "index_select: an index ", index, " of ", x);
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
