#pragma once
// LayerNorm and RMSNorm over the last dimension. Owned by the module they are members of; rank's
// thread.
#include <optional>

#include <coshard/runtime/launch/world.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // a weight (ones)
  bool bias = true;    // and a bias (zeros); none without affine
  DType dtype = DType::F32;
};

class LayerNorm : public Module {
 public:
  LayerNorm(std::int64_t dim, World& world, LayerNormOptions options = {});

  std::int64_t dim;
  double eps;
  Tensor weight, bias;  // [dim], or undefined

 protected:
  Task<Tensor> run(Tensor x) override;
};

struct RMSNormOptions {
  // Default as in torch.nn.RMSNorm: the epsilon of the dtype it computes in, f64 or f32.
  std::optional<double> eps = std::nullopt;
  bool affine = true;
  bool offset = false;  // multiply by 1 + weight in f32, as Gemma; the weight is 0 at first
  DType dtype = DType::F32;
};

// A plain x beside a DTensor weight is the rank's own rows, such as those of its heads: the
// weight's gradient is the sum over the ranks.
class RMSNorm : public Module {
 public:
  RMSNorm(std::int64_t dim, World& world, RMSNormOptions options = {});

  std::int64_t dim;
  std::optional<double> eps;
  bool offset;
  Tensor weight;  // [dim] (ones), or undefined

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
