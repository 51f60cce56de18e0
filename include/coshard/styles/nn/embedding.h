#pragma once
// Embedding: ids [...] -> weight[ids] [..., dim]. Owned by the module it is a member of; rank's
// thread.
#include <optional>

#include <coshard/runtime/launch/world.h>
#include <coshard/styles/module.h>
#include <coshard/styles/nn/linear.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct EmbeddingOptions {
  // This row gets no gradient; -1: the last.
  std::optional<std::int64_t> padding_idx = std::nullopt;
  DType dtype = DType::F32;
  double init_std = 1;
};

// ids are i64 or i32. The weight is initialized to normal(0, init_std), the row padding_idx to 0.
class Embedding : public Module {
 public:
  Embedding(std::int64_t num, std::int64_t dim, World& world, EmbeddingOptions options = {});

  std::int64_t num, dim;
  std::optional<std::int64_t> padding_idx;
  Tensor weight;  // [num, dim]

  std::optional<ShardAxes> shard_axes(ShardBy way) const override;

 protected:
  Task<Tensor> run(Tensor ids) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
