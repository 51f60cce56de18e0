#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

const kernels::RopeTable* rope_table(std::int64_t key) {
  return reinterpret_cast<const kernels::RopeTable*>(key);
}

// A rotation: its gradient is the inverse rotation.
std::vector<TensorInfo> rotary_infer(Infos in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  require_floating("rotary_embedding", in[0]);
  CS_REQUIRE(x.size() == 4, "rotary_embedding: x ", x, " is not [batch, seq, heads, dim]");
  CS_REQUIRE(x[3] % 2 == 0, "rotary_embedding: dimension ", x[3], " of x ", x, " is odd");
  if (const auto* table = rope_table(attrs.as<RotaryEmbeddingAttrs>().table))
    CS_REQUIRE(static_cast<std::int64_t>(table->frequencies.size()) == x[3] / 2,
               "rotary_embedding: ", table->frequencies.size(), " frequencies are not half of ",
               x[3], ", the last dimension of x ", x);
  if (in[1].defined)
    CS_REQUIRE(in[1].dtype == DType::I64 && in[1].shape == Shape({x[0], x[1]}),
               "rotary_embedding: positions ", in[1].shape, ' ', in[1].dtype, " are not i64 [",
               x[0], ", ", x[1], "], one per row of x ", x);
  return {in[0]};
}

Rule rotary_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in = {"abc.", in[1].defined ? "ab" : ""};
  rule.out = {"abc."};
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

void rotary_forward(OpContext& c) {
  const kernels::View x = view_of(c.in[0]);
  const auto a = c.attrs.as<RotaryEmbeddingAttrs>();
  kernels::Rope rope{view_of(c.make()), x,         a.first_position,
                     a.theta,           a.inverse, rope_table(a.table)};
  if (c.in[1].defined())
    rope.positions = view_of(c.in[1]);
  else
    rope.first_position += c.offset(0, 1);
  launch(c, rope);
}

void rotary_backward(GradContext& c);

[[gnu::cold]] std::vector<OpDef::Sample> rotary_samples() {
  const TensorInfo positions = input({2, 3}, DType::I64);
  return {{{input({2, 3, 4, 6}), absent()}, RotaryEmbeddingAttrs{0, false, 10000}},
          {{input({1, 5, 3, 2}), absent()}, RotaryEmbeddingAttrs{7, false, 100}},
          {{input({2, 3, 2, 4}), positions}, RotaryEmbeddingAttrs{0, false, 100}}};
}

const OpDef& rotary_embedding_op() {
  static const OpDef op{.name = "rotary_embedding",
                        .rule = rotary_rule,
                        .infer = rotary_infer,
                        .forward = rotary_forward,
                        .backward = rotary_backward,
                        .saves_in = 0b10,
                        .saves_out = 0,
                        .samples = rotary_samples};
  return op;
}

void rotary_backward(GradContext& c) {
  auto attrs = c.attrs.as<RotaryEmbeddingAttrs>();
  attrs.inverse = !attrs.inverse;
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, call1(rotary_embedding_op(), {c.out_grad[0], c.in[1]}, attrs));
}

}  // namespace

Tensor rotary_embedding(const Tensor& x, double theta, std::int64_t first_position, CallSite site) {
  const OperatorCall user(site);
  return call1(
      rotary_embedding_op(), {x, Tensor()},
      RotaryEmbeddingAttrs{.first_position = first_position, .inverse = false, .theta = theta});
}

Tensor rotary_embedding(const Tensor& x, const RotaryTable& table, std::int64_t first_position,
                        CallSite site) {
  const OperatorCall user(site);
  return call1(
      rotary_embedding_op(), {x, Tensor()},
      RotaryEmbeddingAttrs{
          .first_position = first_position, .inverse = false, .theta = 0, .table = table.key()});
}

Tensor rotary_embedding(const Tensor& x, double theta, const Tensor& positions, CallSite site) {
  const OperatorCall user(site);
  return call1(rotary_embedding_op(), {x, on_mesh_of(x, positions)},
               RotaryEmbeddingAttrs{.first_position = 0, .inverse = false, .theta = theta});
}

Tensor rotary_embedding(const Tensor& x, const RotaryTable& table, const Tensor& positions,
                        CallSite site) {
  const OperatorCall user(site);
  return call1(rotary_embedding_op(), {x, on_mesh_of(x, positions)},
               RotaryEmbeddingAttrs{
                   .first_position = 0, .inverse = false, .theta = 0, .table = table.key()});
}

std::span<const OpDef* const> rotary_embedding_ops() {
  static const OpDef* const ops[] = {&rotary_embedding_op()};
  return ops;
}

}  // namespace coshard
