#pragma once
// Attention: causal self-attention with rotary positions and grouped key/value heads. Owned by the
// module it is a member of; rank's thread.
#include <coshard/styles/nn/linear.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct AttentionOptions {
  std::int64_t dim = 0;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0: heads
  bool bias = false;
  bool rotary = true;
  bool causal = true;
  double rope_theta = 10000;
  DType dtype = DType::F32;
  std::optional<double> init_std = std::nullopt;  // as LinearOptions
};

// x [batch, seq, dim] -> [batch, seq, dim], with seq not sharded. The outputs of wq, wk and wv are
// viewed as [batch, seq, width/head_dim, head_dim], with width taken from the tensor: a rank's
// number of heads follows from its local projection, and DTensors work as well as local tensors.
// Error{BadInput}: a width that is not a multiple of head_dim; dim not divisible by heads; heads
// not divisible by kv_heads.
class Attention : public Module {
 public:
  Attention(AttentionOptions options, World& world);

  std::int64_t head_dim;
  Linear wq, wk, wv, wo;

  InputProducts input_products() const override { return products_of({&wq, &wk, &wv}); }

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  Tensor split_heads(const Tensor& x, bool rotate) const;

  AttentionOptions options_;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
