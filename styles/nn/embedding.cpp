#include <coshard/styles/nn/embedding.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>

namespace coshard::nn {

Embedding::Embedding(std::int64_t num, std::int64_t dim, World& world, EmbeddingOptions options)
    : num(num), dim(dim), padding_idx(options.padding_idx) {
  CS_REQUIRE(num > 0 && dim > 0, "Embedding: num and dim must be positive, got ", num, " and ",
             dim);
  CS_REQUIRE(!padding_idx || (*padding_idx >= -num && *padding_idx < num),
             "Embedding: padding_idx ", *padding_idx, " is out of bounds for ", num, " rows");
  weight = empty(world, Shape{num, dim}, options.dtype);
  normal_(weight, 0, options.init_std);
  if (padding_idx) fill_(select(weight, 0, *padding_idx), 0);
  weight.set_requires_grad(true);
  register_parameter("weight", weight);
}

std::optional<ShardAxes> Embedding::shard_axes(ShardBy way) const {
  ShardAxes axes;
  axes.parameters.push_back({"weight", Shard(way == ShardBy::Columns ? 1 : 0)});
  return axes;
}

Task<Tensor> Embedding::run(Tensor ids) { co_return embedding(ids, weight, padding_idx); }

}  // namespace coshard::nn
