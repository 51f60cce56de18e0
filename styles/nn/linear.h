#pragma once
// Linear: y[..., out] = x[..., in] @ weight[out, in]^T + bias[out]. Owned by the module it is a
// member of; rank's thread.
#include "runtime/launch/world.h"
#include "styles/module.h"

namespace coshard::nn {

// Standard deviation of the normal distribution that weights start from, here and in Embedding.
constexpr double kInitStd = 0.02;

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::F32;
  double init_std = kInitStd;
};

// The weight starts as normal(0, init_std), drawn by global element index (random.h), the bias as
// 0. All ranks construct modules in the same order.
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
