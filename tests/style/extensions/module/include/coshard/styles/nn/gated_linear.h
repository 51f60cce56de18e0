#pragma once
// GatedLinear: sigmoid(x gate^T) * (x up^T). Its output features can be sharded, in both weights
// alike. Owned by the module it is a member of; rank's thread.
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/styles/module.h>

namespace coshard::nn {

class GatedLinear : public Module {
 public:
  GatedLinear(std::int64_t in, std::int64_t out, World& world, DType dtype = DType::F32) : in_(in) {
    gate = randn(world.device(), Shape{out, in}, dtype).requires_grad_();
    up = randn(world.device(), Shape{out, in}, dtype).requires_grad_();
    register_parameter("gate", gate);
    register_parameter("up", up);
  }

  std::optional<ShardAxes> shard_axes(ShardBy way) const override {
    if (way == ShardBy::Rows) return std::nullopt;  // a product of two sums is no sum
    return ShardAxes{{{"gate", Shard(0)}, {"up", Shard(0)}}, Replicate(), in_};
  }

  Tensor gate, up;  // [out, in]

 protected:
  Task<Tensor> run(Tensor x) override { co_return sigmoid(linear(x, gate)) * linear(x, up); }

 private:
  std::int64_t in_;
};

}  // namespace coshard::nn
