#pragma once
// Conv1D: the linear layer of GPT-2's files, y[..., out] = x[..., in] @ weight[in, out] +
// bias[out]. Owned by the module it is a member of; rank's thread.
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct Conv1DOptions {
  DType dtype = DType::F32;
  double init_std = 0.02;  // of the weight; the bias is 0
  // Layers of one size side by side in the output, such as q, k and v: each is cut by itself, and
  // the output of ColwiseParallel{.output_layouts = StridedShard(-1, parts)} has a part of each.
  int parts = 1;
  FeatureGroups out_groups = {}, in_groups = {};  // as of a Linear; out_groups of one part
};

// Error{BadInput}: in or out below 1; an out that is not a multiple of parts.
class Conv1D : public Module {
 public:
  Conv1D(std::int64_t in, std::int64_t out, World& world, Conv1DOptions options = {});

  Tensor weight;  // [in, out]
  Tensor bias;    // [out]

  std::optional<ShardAxes> shard_axes(ShardBy way) const override;

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  Conv1DOptions options_;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
