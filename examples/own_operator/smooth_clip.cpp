#include "examples/own_operator/smooth_clip.h"

#include <cmath>

namespace own {
namespace {

// The attributes of a call.
struct SmoothClipAttrs {
  double limit;
};

// Shapes and dtypes of the outputs, from those of the inputs: one, like the only input.
std::vector<cs::TensorInfo> infer(std::span<const cs::TensorInfo> in, const cs::Attrs& attrs) {
  CS_REQUIRE(cs::is_floating(in[0].dtype), "smooth_clip: ", in[0].dtype, " is not floating");
  const double limit = attrs.as<SmoothClipAttrs>().limit;
  CS_REQUIRE(limit > 0, "smooth_clip: limit ", limit);
  return {in[0]};
}

// Computes this rank's part, whatever the layout. A loop over data_as<float>() would do too;
// written with operators, it supports every device and dtype.
void forward(cs::OpContext& c) {
  const double limit = c.attrs.as<SmoothClipAttrs>().limit;
  const cs::Tensor part = c.in[0].raw_local();  // a plain tensor, off the tape
  c.out[0] = cs::tanh(part / limit) * limit;
}

// On logical tensors, with operators: d/dx = 1 - (y / limit)^2.
void backward(cs::GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const double limit = c.attrs.as<SmoothClipAttrs>().limit;
  const cs::Tensor y = smooth_clip(c.in[0], limit) / limit;
  c.sink.accumulate(0, c.out_grad[0] * (1 - y * y));
}

const cs::OpDef& smooth_clip_op() {
  static const cs::OpDef op{.name = "smooth_clip",
                            .rule = cs::elementwise_rule,
                            .infer = infer,
                            .forward = forward,
                            .backward = backward,
                            .saves_out = 0};
  return op;
}

}  // namespace

cs::Tensor smooth_clip(const cs::Tensor& x, double limit) {
  return cs::call1(smooth_clip_op(), {x}, SmoothClipAttrs{limit});
}

}  // namespace own
