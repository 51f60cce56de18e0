#include <coshard/styles/nn/mlp.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/coro/when_all.h>

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
  if (x.in_flight()) {  // each shard with both, as it arrives
    auto both = when_all(w1.forward(x), w3.forward(x));
    std::tie(gate, up) = co_await std::move(both);
  } else {
    gate = co_await w1.forward(x);
    up = co_await w3.forward(std::move(x));
  }
  Tensor hidden = swiglu(gate, up);
  co_return co_await w2.forward(std::move(hidden));
}

}  // namespace coshard::nn
