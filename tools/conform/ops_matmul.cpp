#include "tools/conform/op_call.h"

namespace coshard::conform {
namespace {

std::vector<Tensor> addmm_of(const OpCall& c) {
  return {addmm(c[0], c[1], c[2], c.number("beta", 1), c.number("alpha", 1))};
}

std::vector<Tensor> embedding_of(const OpCall& c) {
  std::optional<std::int64_t> padding;
  if (c.has("padding_idx")) padding = c.integer("padding_idx");
  return {embedding(c[0], c[1], padding)};
}

std::vector<Tensor> attention_of(const OpCall& c) {
  return {scaled_dot_product_attention(c[0], c[1], c[2], c[3], c.number("dropout_p", 0),
                                       c.flag("is_causal", false), c.maybe_number("scale"),
                                       c.flag("enable_gqa", false))};
}

}  // namespace

const OpTable& matmul_table() {
  static const OpTable table{
      {"matmul", [](const OpCall& c) { return std::vector{matmul(c[0], c[1])}; }},
      {"mm", [](const OpCall& c) { return std::vector{mm(c[0], c[1])}; }},
      {"bmm", [](const OpCall& c) { return std::vector{bmm(c[0], c[1])}; }},
      {"mv", [](const OpCall& c) { return std::vector{mv(c[0], c[1])}; }},
      {"dot", [](const OpCall& c) { return std::vector{dot(c[0], c[1])}; }},
      {"outer", [](const OpCall& c) { return std::vector{outer(c[0], c[1])}; }},
      {"addmm", addmm_of},
      {"baddbmm", addmm_of},
      {"linear", [](const OpCall& c) { return std::vector{linear(c[0], c[1], c[2])}; }},
      {"einsum",
       [](const OpCall& c) { return std::vector{einsum(c.text("equation"), c[0], c[1])}; }},
      {"embedding", embedding_of},
      {"scaled_dot_product_attention", attention_of},
  };
  return table;
}

}  // namespace coshard::conform
