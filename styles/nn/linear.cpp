#include <coshard/styles/nn/linear.h>

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/distribute/init.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "styles/weaving.h"

namespace coshard::nn {

Linear::Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options)
    : in_features(in), out_features(out) {
  CS_REQUIRE(in > 0 && out > 0, "Linear: in and out must be positive, got ", in, " and ", out);
  weight = empty(world, Shape{out, in}, options.dtype);
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

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

std::optional<ShardAxes> Linear::shard_axes(ShardBy way) const {
  const bool columns = way == ShardBy::Columns;
  ShardAxes axes;
  axes.parameters.push_back({"weight", Shard(columns ? 0 : 1)});
  if (bias.defined()) axes.parameters.push_back({"bias", columns ? Shard(0) : Replicate()});
  if (lora_A) {
    axes.parameters.push_back({"lora_A.weight", columns ? Replicate() : Shard(1)});
    axes.parameters.push_back({"lora_B.weight", columns ? Shard(0) : Replicate()});
  }
  axes.input = columns ? Replicate() : Shard(-1);
  axes.width = in_features;
  axes.groups = columns ? out_groups : in_groups;
  return axes;
}

std::vector<std::string> Linear::optional_names() const {
  if (!lora_A) return {};
  return {"lora_A.weight", "lora_B.weight"};
}

InputProducts products_of(std::initializer_list<const Linear*> layers) {
  InputProducts products;
  const bool draws = std::ranges::any_of(layers, &Linear::draws);
  for (const Linear* layer : layers) {
    const Overlap overlap = layer->overlap();
    if (overlap == Overlap::Off || (draws && !products.weights.empty())) continue;
    products.weights.push_back(layer->weight);
    products.overlap = std::max(products.overlap, overlap);
  }
  return products;
}

Task<Tensor> Linear::run(Tensor x) {
  if (!lora_A) return product(std::move(x));
  return adapted(std::move(x));
}

// The product is left Partial where it is a sum over ranks, so that one collective reduces both.
Task<Tensor> Linear::adapted(Tensor x) {
  Task<Tensor> base = product(x);
  const Tensor y = co_await std::move(base);
  if (x.in_flight()) {  // its shards have arrived
    Task<void> arrived = arrival_of(Tensors(x));
    co_await std::move(arrived);
  }
  Task<Tensor> down = lora_A->forward(dropout(x, lora.dropout, training()));
  Tensor h = co_await std::move(down);
  Task<Tensor> up = lora_B->forward(std::move(h));
  const Tensor term = co_await std::move(up);
  co_return y + term* lora.scale();
}

Overlap Linear::overlap() const {
  const Overlap set = overlapping().overlap;
  return set == Overlap::Auto && computes_a_woven_part() ? Overlap::Off : set;
}

Task<Tensor> Linear::product(Tensor x) {
  if (overlapping().overlap == Overlap::Off) co_return linear(x, weight, bias);
  const std::optional<Placement> target = lora_A ? std::nullopt : overlapping().target;
  Task<Tensor> made = overlapped_linear(std::move(x), weight, bias, target, overlap());
  co_return co_await std::move(made);
}

}  // namespace coshard::nn
