#include <coshard/styles/nn/linear.h>

#include <cmath>

#include <coshard/dtensor/init.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>

namespace coshard::nn {

Linear::Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options)
    : in_features(in), out_features(out) {
  CS_REQUIRE(in > 0 && out > 0, "Linear: ", in, " in, ", out, " out");
  weight = Tensor::empty(world.device(), Shape{out, in}, options.dtype);
  if (options.init_std)
    normal_(weight, 0, *options.init_std);
  else
    init::kaiming_uniform_(weight, std::sqrt(5));
  weight.set_requires_grad(true);
  register_parameter("weight", weight);
  if (options.bias) {
    bias = zeros(world.device(), Shape{out}, options.dtype);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    if (!options.init_std) uniform_(bias, -bound, bound);
    bias.set_requires_grad(true);
  }
  register_parameter("bias", bias);
}

Task<Tensor> Linear::run(Tensor x) { co_return linear(x, weight, bias); }

}  // namespace coshard::nn
