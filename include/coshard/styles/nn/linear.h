#pragma once
// Linear: y[..., out] = x[..., in] @ weight[out, in]^T + bias[out]. Owned by the module it is a
// member of; rank's thread.
#include <optional>

#include <coshard/runtime/launch/world.h>
#include <coshard/styles/module.h>

namespace coshard::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::F32;
  // Given: the weight starts as normal(0, init_std), the bias as 0.
  std::optional<double> init_std = std::nullopt;
};

// Starts as torch.nn.Linear does: weight and bias uniform(-1/sqrt(in), 1/sqrt(in)), drawn by global
// element index (random.h). All ranks construct modules in the same order.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options = {});

  std::int64_t in_features, out_features;
  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace coshard::nn
