#pragma once
// Linear: y[..., out] = x[..., in] @ weight[out, in]^T + bias[out]. Owned by the module it is a
// member of; rank's thread.
#include <memory>
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

// Of LoRA (Hu et al., 2021): add_lora in lora.h.
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;    // the product of the adapters is multiplied by alpha / rank
  double dropout = 0;   // of the adapter's input, in training
  bool rslora = false;  // by alpha / sqrt(rank) instead (Kalajdzievski, 2023)
  friend bool operator==(const LoraOptions&, const LoraOptions&) = default;
  double scale() const;
};

// Initialized as torch.nn.Linear: weight and bias uniform(-1/sqrt(in), 1/sqrt(in)), drawn by global
// element index (random.h). All ranks must construct modules in the same order.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, World& world, LinearOptions options = {});

  std::int64_t in_features, out_features;
  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
  // What add_lora has added, as modules lora_A [rank, in] and lora_B [out, rank]:
  // y += scale * lora_B(lora_A(dropout(x))). Sharded by columns, lora_A is R and lora_B S(0); by
  // rows, S(1) and R: so the term is sharded, or Partial, as y is, and costs no collective.
  std::shared_ptr<Linear> lora_A, lora_B;  // null: none
  LoraOptions lora = {};
  // Which columns of the output, and of the input, stay together: those of heads.
  FeatureGroups out_groups, in_groups;

  std::optional<ShardAxes> shard_axes(ShardBy way) const override;
  InputProducts input_products() const override { return {{weight}, overlap()}; }
  // Whether forward() draws random numbers: the dropout of its adapter.
  bool draws() const { return lora_A && training() && lora.dropout > 0; }
  // Overlap::Off in a part of a woven batch, unless it is set to Always.
  Overlap overlap() const;
  // Those of its adapter, which files of the base lack.
  std::vector<std::string> optional_names() const override;

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  Task<Tensor> product(Tensor x);
  Task<Tensor> adapted(Tensor x);
};

// What layers with one input multiply it with while its shards arrive: with all their weights, or
// with the first one's, if one of the layers draws and they run one after the other.
InputProducts products_of(std::initializer_list<const Linear*> layers);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
