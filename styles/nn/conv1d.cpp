#include <coshard/styles/nn/conv1d.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>

namespace coshard::nn {

Conv1D::Conv1D(std::int64_t in, std::int64_t out, World& world, Conv1DOptions options)
    : options_(options) {
  CS_REQUIRE(in > 0 && out > 0 && options.parts > 0 && out % options.parts == 0, "Conv1D: in ", in,
             ", out ", out, " and parts ", options.parts,
             " must be positive, and out a multiple of parts");
  weight = empty(world, Shape{in, out}, options.dtype);
  normal_(weight, 0, options.init_std);
  bias = zeros(world.device(), Shape{out}, options.dtype);
  for (Tensor* each : {&weight, &bias}) each->set_requires_grad(true);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

std::optional<ShardAxes> Conv1D::shard_axes(ShardBy way) const {
  const auto cut = [&](int dim) {
    return options_.parts == 1 ? Shard(dim) : StridedShard(dim, options_.parts);
  };
  ShardAxes axes;
  if (way == ShardBy::Columns) {
    axes.parameters = {{"weight", cut(1)}, {"bias", cut(0)}};
    axes.groups = options_.out_groups;
    return axes;
  }
  axes.parameters = {{"weight", Shard(0)}, {"bias", Replicate()}};
  axes.input = Shard(-1);
  axes.width = weight.size(0);
  axes.groups = options_.in_groups;
  return axes;
}

Task<Tensor> Conv1D::run(Tensor x) { co_return linear(x, transpose(weight, 0, 1), bias); }

}  // namespace coshard::nn
