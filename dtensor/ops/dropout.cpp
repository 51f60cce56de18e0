#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tensor/generator.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// Linear, and its draws depend only on seed and stream, so the operator is its own gradient.
std::vector<TensorInfo> dropout_infer(Infos in, const Attrs&) {
  require_floating("dropout", in[0]);
  return {in[0]};
}

kernels::RandomRegion region_of(const OpContext& c) {
  const Shape& local = c.out_shape[0];
  const Spec* spec = c.out_spec[0].get();
  const Strides global = row_major(spec ? spec->shape : local);
  kernels::RandomRegion region{static_cast<int>(local.size()), {}, {}, {}};
  for (std::size_t i = 0; i < local.size(); ++i) {
    region.shape[i] = local[i];
    region.offset[i] = spec ? spec->offset[i] : 0;
    region.global_strides[i] = global[i];
  }
  return region;
}

// Elementwise, but draws depend on an element's position in the logical tensor.
Rule dropout_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  rule.strided = false;
  return rule;
}

void dropout_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  const auto a = c.attrs.as<DropoutAttrs>();
  const RandomState drawn{a.seed.value, a.stream.value};
  kernels::Dropout dropout{x.dtype(), region_of(c),   drawn.seed, drawn.next_stream,
                           a.p,       x.const_data(), y.address()};
  if (const StepGraph* step = StepGraph::recording())
    dropout.origin = step->random_origin(drawn, &dropout.stream);
  launch(c, dropout);
}

void dropout_backward(GradContext& c);

[[gnu::cold]] std::vector<OpDef::Sample> dropout_samples() {
  return {{{input({3, 5})}, DropoutAttrs{0.4, {17}, {3}}},
          {{input({2, 3, 6})}, DropoutAttrs{0.5, {1}, {0}}}};
}

const OpDef& dropout_op() {
  static const OpDef op{.name = "dropout",
                        .rule = dropout_rule,
                        .infer = dropout_infer,
                        .forward = dropout_forward,
                        .backward = dropout_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = dropout_samples};
  return op;
}

void dropout_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, call1(dropout_op(), {c.out_grad[0]}, c.attrs));
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(p >= 0 && p <= 1, "dropout: probability ", p, " is not in [0, 1]");
  if (!training || p == 0) return x;
  if (p == 1) return mul(x, 0.0);
  const RandomState state = take_stream(x);
  return call1(dropout_op(), {x}, DropoutAttrs{p, {state.seed}, {state.next_stream}});
}

std::span<const OpDef* const> dropout_ops() {
  static const OpDef* const ops[] = {&dropout_op()};
  return ops;
}

}  // namespace coshard
