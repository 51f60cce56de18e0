#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

bool is_index(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }

// in: ids, weight
std::vector<TensorInfo> embedding_infer(Infos in, const Attrs&) {
  CS_REQUIRE(is_index(in[0].dtype), "embedding: ids must be i64 or i32, got ", in[0].dtype);
  require_floating("embedding", in[1]);
  CS_REQUIRE(in[1].shape.size() == 2, "embedding: weight ", in[1].shape, " is not [rows, dim]");
  Shape out = in[0].shape;
  out.push_back(in[1].shape[1]);
  return {{out, in[1].dtype}};
}

// Sharding the rows 'y' of the table gives a Partial: each rank looks up its own rows, and yields
// zero for the others.
Rule embedding_rule(Infos in, const Attrs&) {
  const std::string ids = axes(in[0].shape.size());
  Rule rule;
  rule.in = {ids, "yz"};
  rule.out = {ids + "z"};
  pass_partial(rule, "RP", "P", kLinear);
  return rule;
}

void embedding_forward(OpContext& c) {
  const Tensor ids = local_contiguous(c.in[0]);
  // An id out of bounds for the whole table, not only for this rank's rows, is the caller's error.
  const std::int64_t rows = c.in[1].shape()[0];
  launch(c, kernels::CheckIndex{DeviceAssertKind::EmbeddingId, ids.dtype(), ids.local_numel(), rows,
                                ids.const_data()});
  const Tensor weight = local_contiguous(c.in[1]);
  const Shape& n = weight.local_shape();
  launch(c, kernels::Embedding{weight.dtype(), ids.dtype(), ids.local_numel(), n[0], n[1],
                               c.offset(1, 0), ids.const_data(), weight.const_data(),
                               c.make().address()});
}

// in: dy, ids, weight (only for its layout: the gradient gets the same one where that is free);
// out: dweight
Rule embedding_backward_rule(Infos in, const Attrs&) {
  const std::string ids = axes(in[1].shape.size());
  Rule rule;
  rule.in = {ids + "z", ids, "yz"};
  rule.out = {"yz"};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Placement rows = Shard(static_cast<int>(i));
    for (int d = 0; d < 2; ++d) rule.extra.push_back({{rows, rows, Shard(d)}, {Partial()}});
  }
  pass_partial(rule, "PRR", "P", kLinear);
  return rule;
}

std::vector<TensorInfo> embedding_backward_infer(Infos in, const Attrs&) { return {in[2]}; }

void embedding_backward_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor ids = local_contiguous(c.in[1]);
  const Shape& n = c.out_shape[0];
  const std::int64_t first = c.out_spec[0] ? c.out_spec[0]->offset[0] : 0;
  launch(c, kernels::EmbeddingGrad{dy.dtype(), ids.dtype(), ids.local_numel(), n[0], n[1], first,
                                   c.attrs.as<EmbeddingAttrs>().padding, ids.const_data(),
                                   dy.const_data(), c.make().address()});
}

const OpDef& embedding_backward_op() {
  static const OpDef op{.name = "embedding_backward",
                        .rule = embedding_backward_rule,
                        .infer = embedding_backward_infer,
                        .forward = embedding_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

void embedding_backward(GradContext& c) {
  if (!c.sink.needs_grad(1)) return;
  const Tensor dy = c.out_grad[0];
  const Tensor ids = c.in[0];
  const Tensor weight = c.in[1];
  const Attrs attrs = c.attrs;
  c.sink.defer(1, [=] { return call1(embedding_backward_op(), {dy, ids, weight}, attrs); });
}

[[gnu::cold]] std::vector<OpDef::Sample> embedding_samples() {
  return {{{input({5}, DType::I64), input({7, 3})}, EmbeddingAttrs{-1}, -2, 2, 7},
          {{input({3, 4}, DType::I32), input({5, 6})}, EmbeddingAttrs{-1}, -2, 2, 5}};
}

const OpDef& embedding_op() {
  static const OpDef op{.name = "embedding",
                        .rule = embedding_rule,
                        .infer = embedding_infer,
                        .forward = embedding_forward,
                        .backward = embedding_backward,
                        .saves_out = 0,
                        .samples = embedding_samples};
  return op;
}

}  // namespace

Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<std::int64_t> padding_idx,
                 CallSite site) {
  const OperatorCall user(site);
  constexpr std::int64_t kNone = -1;
  std::int64_t padding = padding_idx.value_or(kNone);
  if (padding_idx) {
    const std::int64_t rows = weight.size(0);
    CS_REQUIRE(padding >= -rows && padding < rows, "embedding: padding_idx ", padding,
               " is out of bounds for ", rows, " rows");
    if (padding < 0) padding += rows;
  }
  return call1(embedding_op(), {ids, weight}, EmbeddingAttrs{padding});
}

std::span<const OpDef* const> embedding_ops() {
  static const OpDef* const ops[] = {&embedding_op(), &embedding_backward_op()};
  return ops;
}

}  // namespace coshard
