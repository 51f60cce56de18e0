#include "styles/nn/linear.h"

#include "dtensor/ops/ops.h"
#include "dtensor/random.h"

namespace coshard::nn {

Linear::Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options)
    : in_features(in), out_features(out) {
  CS_REQUIRE(in > 0 && out > 0, "Linear: ", in, " in, ", out, " out");
  weight = Tensor::empty(world.device(), Shape{out, in}, options.dtype);
  normal_(weight, 0, options.init_std);
  weight.set_requires_grad(true);
  register_parameter("weight", weight);
  if (options.bias) {
    bias = zeros(world.device(), Shape{out}, options.dtype);
    bias.set_requires_grad(true);
  }
  register_parameter("bias", bias);
}

Task<Tensor> Linear::run(Tensor x) { co_return linear(x, weight, bias); }

}  // namespace coshard::nn
