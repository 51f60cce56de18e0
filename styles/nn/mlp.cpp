#include <coshard/styles/nn/mlp.h>

#include <coshard/dtensor/ops/ops.h>
#include "styles/nn/together.h"

namespace coshard::nn {

MLP::MLP(MLPOptions options, World& world)
    : w1(options.dim, options.ffn, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      w3(options.dim, options.ffn, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      w2(options.ffn, options.dim, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}) {
  register_module("w1", w1);
  register_module("w3", w3);
  register_module("w2", w2);
}

Task<Tensor> MLP::run(Tensor x) {
  Tensor gate, up;
  if (arrives_by_shards(x)) {  // each shard with both, as it arrives
    Task<std::vector<Tensor>> both = forward_together(x, {&w1, &w3});
    const std::vector<Tensor> made = co_await std::move(both);
    gate = made[0], up = made[1];
  } else {
    gate = co_await w1.forward(x);
    up = co_await w3.forward(std::move(x));
  }
  Tensor hidden = swiglu(gate, up);
  co_return co_await w2.forward(std::move(hidden));
}

}  // namespace coshard::nn
