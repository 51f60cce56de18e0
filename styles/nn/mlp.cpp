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
  Task<std::vector<Tensor>> both = forward_together(std::move(x), {&w1, &w3});
  std::vector<Tensor> made = co_await std::move(both);
  Tensor hidden = swiglu(made[0], made[1]);
  made.clear();
  co_return co_await w2.forward(std::move(hidden));
}

}  // namespace coshard::nn
