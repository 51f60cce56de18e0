#include <algorithm>
#include <cctype>

#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/products.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

bool einsum_has(std::string_view axes, char axis) { return axes.find(axis) != axes.npos; }

// The axes of both operands and of the result. The operator itself takes equations in which each
// axis occurs in at least two of the three, at most once in each.
struct Equation {
  std::string a, b, out;

  std::string text() const { return a + "," + b + "->" + out; }
  // Letters of `from` that occur in `other`, or that do not.
  static std::string those(const std::string& from, const std::string& other, bool has) {
    std::string result;
    for (char c : from)
      if (einsum_has(other, c) == has) result += c;
    return result;
  }
  // The four kinds of axes of a product.
  std::string batch() const { return those(those(out, a, true), b, true); }
  std::string left() const { return those(out, b, false); }
  std::string right() const { return those(out, a, false); }
  std::string inner() const { return those(a, out, false); }
};

std::int64_t pack_axes(const std::string& axes) {
  std::uint64_t word = 0;
  for (char c : axes) word = word << 8 | static_cast<unsigned char>(c);
  return static_cast<std::int64_t>(word);
}

std::string unpack_axes(std::int64_t packed) {
  std::string axes;
  for (auto word = static_cast<std::uint64_t>(packed); word; word >>= 8)
    axes.insert(axes.begin(), static_cast<char>(word & 0xff));
  return axes;
}

Equation equation_of(const Attrs& attrs) {
  const auto packed = attrs.as<EinsumAttrs>();
  return {unpack_axes(packed.a), unpack_axes(packed.b), unpack_axes(packed.out)};
}

std::int64_t size_of_axis(char axis, const std::string& axes, const Shape& shape) {
  return shape[axes.find(axis)];
}

// The sizes of `order`, axes of a or b.
Shape sizes_of_axes(const std::string& order, const Equation& e, const Shape& a, const Shape& b) {
  Shape shape;
  for (char c : order)
    shape.push_back(einsum_has(e.a, c) ? size_of_axis(c, e.a, a) : size_of_axis(c, e.b, b));
  return shape;
}

std::vector<TensorInfo> einsum_infer(Infos in, const Attrs& attrs) {
  const Equation e = equation_of(attrs);
  CS_REQUIRE(in[0].dtype != DType::Bool, "einsum does not support bool, got bool", in[0].shape);
  require_same_dtype("einsum", in[0], in[1]);
  for (char c : Equation::those(e.a, e.b, true))
    CS_REQUIRE(size_of_axis(c, e.a, in[0].shape) == size_of_axis(c, e.b, in[1].shape),
               "einsum: sizes of '", c, "' differ in ", e.text(), ": ", in[0].shape, " and ",
               in[1].shape);
  return {{sizes_of_axes(e.out, e, in[0].shape, in[1].shape), in[0].dtype}};
}

Rule einsum_rule(Infos, const Attrs& attrs) {
  const Equation e = equation_of(attrs);
  Rule rule;
  rule.in = {e.a, e.b};
  rule.out = {e.out};
  rule.strided = true;
  pass_partial(rule, "PR", "P", kLinear);
  pass_partial(rule, "RP", "P", kLinear);
  return rule;
}

// The local tensor with its dimensions in the order of `to`.
Tensor reordered(const Tensor& x, const std::string& from, const std::string& to) {
  Shape shape;
  Strides strides;
  for (char c : to) {
    shape.push_back(x.local_shape()[from.find(c)]);
    strides.push_back(x.strides()[from.find(c)]);
  }
  return x.view_as(shape, strides, x.storage_offset(), nullptr);
}

void einsum_forward(OpContext& c) {
  const Equation e = equation_of(c.attrs);
  const auto sizes = [&](const std::string& axes) {
    return sizes_of_axes(axes, e, c.in[0].local_shape(), c.in[1].local_shape());
  };
  const std::int64_t batch = numel(sizes(e.batch()));
  const std::int64_t m = numel(sizes(e.left()));
  const std::int64_t n = numel(sizes(e.right()));
  const std::int64_t k = numel(sizes(e.inner()));
  const Tensor a = reordered(c.in[0], e.a, e.batch() + e.left() + e.inner());
  const Tensor b = reordered(c.in[1], e.b, e.batch() + e.inner() + e.right());
  const std::string order = e.batch() + e.left() + e.right();
  const Tensor memory = Tensor::empty(c.in[0].device(), sizes(order), c.out_dtype[0]);
  launch(c, kernels::Matmul{view_of(batch_of(local_reshape(memory, {batch, m, n}))),
                            view_of(batch_of(local_reshape(a, {batch, m, k}))),
                            view_of(batch_of(local_reshape(b, {batch, k, n})))});
  c.out[0] = reordered(memory, order, e.out);
}

Tensor einsum_call(const Equation& e, const Tensor& a, const Tensor& b);

void einsum_backward(GradContext& c) {
  const Equation e = equation_of(c.attrs);
  const Tensor a = c.in[0];
  const Tensor b = c.in[1];
  const Tensor dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, einsum_call({e.out, e.b, e.a}, dy, b));
  if (c.sink.needs_grad(1)) c.sink.defer(1, [=] { return einsum_call({e.a, e.out, e.b}, a, dy); });
}

EinsumAttrs einsum_attrs(const Equation& e) {
  CS_REQUIRE(e.out.size() <= 8, "einsum: more than 8 dimensions in the result of ", e.text());
  return {pack_axes(e.a), pack_axes(e.b), pack_axes(e.out)};
}

[[gnu::cold]] std::vector<OpDef::Sample> einsum_samples() {
  return {{{input({3, 5}), input({5, 2})}, einsum_attrs({"mk", "kn", "nm"})},
          {{input({2, 3, 2, 3}), input({2, 2, 2, 3})}, einsum_attrs({"bshd", "bthd", "bhst"})},
          {{input({2, 3, 4}), input({5, 4})}, einsum_attrs({"bsh", "vh", "bsv"})},
          {{input({3}), input({2})}, einsum_attrs({"i", "j", "ij"})}};
}

const OpDef& einsum_op() {
  static const OpDef op{.name = "einsum",
                        .rule = einsum_rule,
                        .infer = einsum_infer,
                        .forward = einsum_forward,
                        .backward = einsum_backward,
                        .compute = ComputeClass::Gemm,
                        .saves_out = 0,
                        .samples = einsum_samples};
  return op;
}

Tensor einsum_call(const Equation& e, const Tensor& a, const Tensor& b) {
  return call1(einsum_op(), {a, b}, einsum_attrs(e));
}

// --- from text to an equation that the operator takes ---

void check_axes(const std::string& axes, std::string_view equation) {
  for (char c : axes)
    CS_REQUIRE(std::isalpha(static_cast<unsigned char>(c)), "einsum: '", c, "' in '", equation,
               "' is not a letter");
}

// How many dimensions "..." stands for in an operand of ndim; 0 without "...".
std::size_t dots_of(const std::string& operand, int ndim, std::string_view equation) {
  if (operand.find("...") == operand.npos) return 0;
  const auto axes = static_cast<int>(operand.size()) - 3;
  CS_REQUIRE(axes <= ndim, "einsum: '", operand, "' of '", equation,
             "' has more axes than the tensor's ", ndim, " dimensions");
  return static_cast<std::size_t>(ndim - axes);
}

// Replaces "..." by the last `count` of the axes that stand for unnamed dimensions.
void spell_dots(std::string& text, const std::string& unnamed, std::size_t count) {
  const auto at = text.find("...");
  if (at != text.npos) text.replace(at, 3, unnamed.substr(unnamed.size() - count));
}

std::string axes_not_in(const std::string& text, std::size_t count) {
  std::string unused;
  for (char c = 'A'; c <= 'z' && unused.size() < count; ++c)
    if (std::isalpha(static_cast<unsigned char>(c)) && !einsum_has(text, c)) unused += c;
  return unused;
}

// The result without "->": the unnamed dimensions, then the axes that occur once, alphabetically.
std::string implicit_result(const std::string& operands, const std::string& unnamed) {
  std::string once;
  for (char c : operands)
    if (std::count(operands.begin(), operands.end(), c) == 1 && !einsum_has(unnamed, c)) once += c;
  std::sort(once.begin(), once.end());
  return unnamed + once;
}

Equation parse_equation(std::string_view equation, int a_dims, int b_dims) {
  std::string text;
  for (char c : equation)
    if (c != ' ') text += c;
  const auto arrow = text.find("->");
  const std::string operands = text.substr(0, arrow);
  const auto comma = operands.find(',');
  CS_REQUIRE(comma != operands.npos && operands.find(',', comma + 1) == operands.npos, "einsum: '",
             equation, "' does not have two operands");
  Equation e{operands.substr(0, comma), operands.substr(comma + 1), {}};
  const std::size_t a_dots = dots_of(e.a, a_dims, equation);
  const std::size_t b_dots = dots_of(e.b, b_dims, equation);
  const std::string unnamed = axes_not_in(text, std::max(a_dots, b_dots));
  spell_dots(e.a, unnamed, a_dots);
  spell_dots(e.b, unnamed, b_dots);
  e.out = arrow == text.npos ? implicit_result(e.a + e.b, unnamed) : text.substr(arrow + 2);
  spell_dots(e.out, unnamed, unnamed.size());
  check_axes(e.a + e.b + e.out, equation);
  for (char c : e.out) {
    CS_REQUIRE(einsum_has(e.a + e.b, c), "einsum: '", c, "' of the result is in no operand of '",
               equation, "'");
    CS_REQUIRE(std::count(e.out.begin(), e.out.end(), c) == 1, "einsum: '", c,
               "' appears twice in the result of '", equation, "'");
  }
  return e;
}

// Takes the diagonal for an axis that occurs twice in an operand.
Tensor without_repeats(Tensor x, std::string& own) {
  for (std::size_t i = 0; i < own.size();) {
    const auto again = own.find(own[i], i + 1);
    if (again == own.npos) {
      ++i;
      continue;
    }
    const char axis = own[i];
    CS_REQUIRE(x.shape()[i] == x.shape()[again], "einsum: sizes of '", axis, "' differ in ", x);
    x = diagonal(x, 0, static_cast<int>(i), static_cast<int>(again));
    own.erase(again, 1);
    own.erase(i, 1);
    own += axis;
  }
  return x;
}

// Drops dimensions of size 1 that broadcast to the other operand's.
Tensor without_ones(const Tensor& x, std::string& own, const std::string& other,
                    const Shape& others) {
  Shape shape;
  std::string kept;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (x.shape()[i] == 1 && einsum_has(other, own[i]) && size_of_axis(own[i], other, others) != 1)
      continue;
    shape.push_back(x.shape()[i]);
    kept += own[i];
  }
  if (kept == own) return x;
  own = kept;
  return view(x, shape);
}

// Sums over the axes that occur nowhere else.
Tensor without_lone(Tensor x, std::string& own, const std::string& elsewhere) {
  for (std::size_t i = own.size(); i-- > 0;) {
    if (einsum_has(elsewhere, own[i])) continue;
    x = sum(x, static_cast<int>(i));
    own.erase(i, 1);
  }
  return x;
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  Equation e = parse_equation(equation, a.ndim(), b.ndim());
  CS_REQUIRE(static_cast<int>(e.a.size()) == a.ndim() && static_cast<int>(e.b.size()) == b.ndim(),
             "einsum: '", equation, "' does not match ", a, " and ", b);
  const Tensor first = without_repeats(a, e.a);
  const Tensor second = without_repeats(b, e.b);
  const std::string a_axes = e.a;
  Tensor left = without_ones(first, e.a, e.b, second.shape());
  Tensor right = without_ones(second, e.b, a_axes, first.shape());
  left = without_lone(left, e.a, e.b + e.out);
  right = without_lone(right, e.b, e.a + e.out);
  return einsum_call(e, left, right);
}

std::span<const OpDef* const> einsum_ops() {
  static const OpDef* const ops[] = {&einsum_op()};
  return ops;
}

}  // namespace coshard
