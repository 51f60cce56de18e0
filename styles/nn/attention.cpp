#include <coshard/styles/nn/attention.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/styles/nn/kv_cache.h>
#include "styles/nn/together.h"

namespace coshard::nn {
namespace {

AttentionOptions checked(AttentionOptions options) {
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  CS_REQUIRE(options.heads > 0 && options.dim > 0, "Attention: dim ", options.dim, " and heads ",
             options.heads, " must be at least 1");
  CS_REQUIRE(options.dim % options.heads == 0, "Attention: dim ", options.dim,
             " is not divisible by heads ", options.heads);
  CS_REQUIRE(options.kv_heads > 0 && options.heads % options.kv_heads == 0, "Attention: heads ",
             options.heads, " is not divisible by kv_heads ", options.kv_heads);
  CS_REQUIRE(!options.rotary || options.dim / options.heads % 2 == 0, "Attention: head_dim ",
             options.dim / options.heads, " (dim ", options.dim, " / heads ", options.heads,
             ") is odd; rotary positions need an even one");
  return options;
}

}  // namespace

Attention::Attention(AttentionOptions options, World& world)
    : head_dim(checked(options).dim / options.heads),
      wq(options.dim, options.dim, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      wk(options.dim, checked(options).kv_heads * head_dim, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      wv(options.dim, checked(options).kv_heads * head_dim, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      wo(options.dim, options.dim, world,
         {.bias = options.bias, .dtype = options.dtype, .init_std = options.init_std}),
      options_(checked(options)) {
  const std::int64_t group = options_.heads / options_.kv_heads * head_dim;
  wq.out_groups = wo.in_groups = {group, group};
  wk.out_groups = wv.out_groups = {head_dim, head_dim};
  register_module("wq", wq);
  register_module("wk", wk);
  register_module("wv", wv);
  register_module("wo", wo);
}

// [batch, seq, width] -> [batch, local heads, seq, head_dim]
Tensor Attention::split_heads(const Tensor& x, bool rotate) const {
  CS_REQUIRE(x.ndim() == 3 && x.size(-1) % head_dim == 0, "Attention: a projection is ", x,
             ", not [batch, seq, a multiple of head_dim ", head_dim,
             "]; each rank needs whole heads of ", options_.heads, " heads and kv_heads ",
             options_.kv_heads);
  Tensor heads = view(x, Shape{x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
  if (rotate) heads = place(heads, options_.rope_theta);
  return transpose(heads, 1, 2);
}

Task<Tensor> Attention::run(Tensor x) {
  Task<std::vector<Tensor>> all = forward_together(std::move(x), {&wq, &wk, &wv});
  std::vector<Tensor> made = co_await std::move(all);
  Tensor q = std::move(made[0]), k = std::move(made[1]), v = std::move(made[2]);
  const Shape shape = q.shape();
  q = split_heads(q, options_.rotary);
  k = split_heads(k, options_.rotary);
  v = split_heads(v, false);
  CS_REQUIRE(options_.causal || sequences() == nullptr,
             "Attention: a SequenceScope around attention that is not causal");
  const Tensor seen = options_.causal ? attend(q, k, v) : attention(q, k, v, false);
  const Tensor heads = transpose(seen, 1, 2);
  Tensor joined = view(heads, shape);
  co_return co_await wo.forward(std::move(joined));
}

}  // namespace coshard::nn
