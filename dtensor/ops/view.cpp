#include <numeric>

#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

Shape target_shape(const Attrs& attrs) { return {attrs.ints.begin(), attrs.ints.end()}; }

// attrs.ints: the new shape
std::vector<TensorInfo> view_infer(Infos in, const Attrs& attrs) {
  const Shape to = target_shape(attrs);
  CS_REQUIRE(numel(to) == numel(in[0].shape), "view: ", in[0].shape, " as ", to);
  return {{to, in[0].dtype}};
}

// Both shapes fall into runs of dimensions with equal products; of each run only the first
// dimensions can be cut, and where their sizes differ only evenly. Dimensions of size 1 belong to
// no run.
Rule view_rule(Infos in, const Attrs& attrs) {
  const Shape& from = in[0].shape;
  const Shape to = target_shape(attrs);
  Rule rule;
  std::string left(from.size(), '.');
  std::string right(to.size(), '.');
  const bool any = numel(from) > 0;
  const auto skip_ones = [](const Shape& shape, std::size_t i) {
    while (i < shape.size() && shape[i] == 1) ++i;
    return i;
  };
  char letter = 'a';
  for (std::size_t i = 0, j = 0; any;) {
    i = skip_ones(from, i);
    j = skip_ones(to, j);
    if (i == from.size() || j == to.size()) break;
    left[i] = right[j] = letter;
    if (from[i] != to[j]) rule.even.push_back({letter, std::gcd(from[i], to[j])});
    ++letter;
    std::int64_t have = from[i++];
    std::int64_t want = to[j++];
    while (have != want) {
      if (have < want) {
        have *= from[i++];
      } else {
        want *= to[j++];
      }
    }
  }
  rule.in = {left};
  rule.out = {right};
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void view_forward(OpContext& c) {
  const Tensor x = local_reshape(c.in[0], c.out_shape[0]);
  c.out[0] = x.view_as(x.local_shape(), x.strides(), x.storage_offset(), nullptr);
}

void view_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, view(c.out_grad[0], c.in_info[0].shape));
}

std::vector<OpDef::Sample> view_samples() {
  return {{{input({3, 5})}, {{15}, {}}},
          {{input({6, 5})}, {{2, 3, 5}, {}}},
          {{input({2, 3, 4})}, {{2, 12}, {}}},
          {{input({1, 5, 6})}, {{5, 1, 3, 2}, {}}},
          {{input({6, 4})}, {{4, 6}, {}}}};
}

const OpDef& view_op() {
  static const OpDef op{.name = "view",
                        .rule = view_rule,
                        .infer = view_infer,
                        .forward = view_forward,
                        .backward = view_backward,
                        .flops = no_flops,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = view_samples};
  return op;
}

// The shape with its -1, if any, worked out.
Shape resolved(Shape shape, const Tensor& x) {
  std::int64_t known = 1;
  std::size_t open = shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) {
      known *= shape[i];
    } else {
      CS_REQUIRE(open == shape.size(), "view: more than one -1 in ", shape);
      open = i;
    }
  }
  if (open == shape.size()) return shape;
  CS_REQUIRE(known > 0 && x.numel() % known == 0, "view: ", x, " as ", shape);
  shape[open] = x.numel() / known;
  return shape;
}

}  // namespace

Tensor view(const Tensor& x, const Shape& shape) {
  const Shape to = resolved(shape, x);
  return call1(view_op(), {x}, {{to.begin(), to.end()}, {}});
}

std::span<const OpDef* const> view_ops() {
  static const OpDef* const ops[] = {&view_op()};
  return ops;
}

}  // namespace coshard
