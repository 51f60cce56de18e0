#pragma once
// MLP: the SwiGLU feed-forward block, w2(silu(w1(x)) * w3(x)). Owned by the module it is a member
// of; rank's thread.
#include <coshard/styles/nn/linear.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct MLPOptions {
  std::int64_t dim = 0;
  std::int64_t ffn = 0;
  bool bias = false;
  DType dtype = DType::F32;
  std::optional<double> init_std = std::nullopt;  // as LinearOptions
};

// x [..., dim] -> [..., dim]
class MLP : public Module {
 public:
  MLP(MLPOptions options, World& world);

  Linear w1, w3;  // [ffn, dim]
  Linear w2;      // [dim, ffn]

  InputProducts input_products() const override { return products_of({&w1, &w3}); }

 protected:
  Task<Tensor> run(Tensor x) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
