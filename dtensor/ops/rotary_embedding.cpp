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
  return {in[0]};
}

Rule rotary_rule(Infos, const Attrs&) {
  Rule rule;
  rule.in = {"abc."};
  rule.out = {"abc."};
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void rotary_forward(OpContext& c) {
  const kernels::View x = view_of(c.in[0]);
  const auto a = c.attrs.as<RotaryEmbeddingAttrs>();
  launch(c, kernels::Rope{view_of(c.make()), x, a.first_position + c.offset(0, 1), a.theta,
                          a.inverse, rope_table(a.table)});
}

void rotary_backward(GradContext& c);

std::vector<OpDef::Sample> rotary_samples() {
  return {{{input({2, 3, 4, 6})}, RotaryEmbeddingAttrs{0, false, 10000}},
          {{input({1, 5, 3, 2})}, RotaryEmbeddingAttrs{7, false, 100}}};
}

const OpDef& rotary_embedding_op() {
  static const OpDef op{.name = "rotary_embedding",
                        .rule = rotary_rule,
                        .infer = rotary_infer,
                        .forward = rotary_forward,
                        .backward = rotary_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = rotary_samples};
  return op;
}

void rotary_backward(GradContext& c) {
  auto attrs = c.attrs.as<RotaryEmbeddingAttrs>();
  attrs.inverse = !attrs.inverse;
  if (c.sink.needs_grad(0))
    c.sink.accumulate(0, call1(rotary_embedding_op(), {c.out_grad[0]}, attrs));
}

}  // namespace

Tensor rotary_embedding(const Tensor& x, double theta, std::int64_t first_position, CallSite site) {
  const OperatorCall user(site);
  return call1(
      rotary_embedding_op(), {x},
      RotaryEmbeddingAttrs{.first_position = first_position, .inverse = false, .theta = theta});
}

Tensor rotary_embedding(const Tensor& x, const RotaryTable& table, std::int64_t first_position,
                        CallSite site) {
  const OperatorCall user(site);
  return call1(
      rotary_embedding_op(), {x},
      RotaryEmbeddingAttrs{
          .first_position = first_position, .inverse = false, .theta = 0, .table = table.key()});
}

std::span<const OpDef* const> rotary_embedding_ops() {
  static const OpDef* const ops[] = {&rotary_embedding_op()};
  return ops;
}

}  // namespace coshard
