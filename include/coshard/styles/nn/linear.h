#pragma once
// Linear: y[..., out] = x[..., in] @ weight[out, in]^T + bias[out]. Owned by the module it is a
// member of; rank's thread.
#include <optional>

#include <coshard/runtime/launch/world.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::F32;
  // If given, the weight is initialized to normal(0, init_std) and the bias to 0.
  std::optional<double> init_std = std::nullopt;
};

// Initialized as torch.nn.Linear: weight and bias uniform(-1/sqrt(in), 1/sqrt(in)), drawn by global
// element index (random.h). All ranks must construct modules in the same order.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options = {});

  std::int64_t in_features, out_features;
  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
  // Which columns of the output, and of the input, stay together: those of heads.
  FeatureGroups out_groups, in_groups;

  std::optional<ShardAxes> shard_axes(ShardBy way) const override;
  bool takes_shards() const override { return overlapping().overlap != Overlap::Off; }

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
