#include <coshard/styles/nn/norm.h>

#include <limits>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>

namespace coshard::nn {
namespace {

void check_width(const Tensor& x, std::int64_t dim, const char* what) {
  CS_REQUIRE(x.ndim() > 0 && x.size(-1) == dim, what, ": the last dimension of ", x, " must be ",
             dim);
}

}  // namespace

LayerNorm::LayerNorm(std::int64_t dim, World& world, LayerNormOptions options)
    : dim(dim), eps(options.eps) {
  CS_REQUIRE(dim > 0, "LayerNorm: dim must be positive, got ", dim);
  if (options.affine) {
    weight = ones(world.device(), Shape{dim}, options.dtype);
    weight.set_requires_grad(true);
  }
  if (options.affine && options.bias) {
    bias = zeros(world.device(), Shape{dim}, options.dtype);
    bias.set_requires_grad(true);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Task<Tensor> LayerNorm::run(Tensor x) {
  check_width(x, dim, "LayerNorm");
  co_return layer_norm(x, weight, bias, eps);
}

RMSNorm::RMSNorm(std::int64_t dim, World& world, RMSNormOptions options)
    : dim(dim), eps(options.eps), offset(options.offset) {
  CS_REQUIRE(dim > 0, "RMSNorm: dim must be positive, got ", dim);
  if (options.affine) {
    weight = full(world.device(), Shape{dim}, offset ? 0 : 1, options.dtype);
    weight.set_requires_grad(true);
  }
  register_parameter("weight", weight);
}

Task<Tensor> RMSNorm::run(Tensor x) {
  check_width(x, dim, "RMSNorm");
  const double epsilon = x.dtype() == DType::F64 ? std::numeric_limits<double>::epsilon()
                                                 : std::numeric_limits<float>::epsilon();
  const bool own = !x.is_distributed() && weight.defined() && weight.is_distributed();
  const Tensor scale =
      own ? to_local(weight, Layout::filled(weight.mesh().ndim(), Partial())) : weight;
  if (!offset || !scale.defined()) co_return rms_norm(x, scale, eps.value_or(epsilon));
  const DType wide = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Tensor y = rms_norm(to(x, wide), to(scale, wide) + 1, eps.value_or(epsilon));
  co_return to(y, x.dtype());
}

}  // namespace coshard::nn
