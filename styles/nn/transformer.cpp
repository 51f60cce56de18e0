#include <coshard/styles/nn/transformer.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/styles/nn/kv_cache.h>

namespace coshard::nn {

TransformerBlock::TransformerBlock(const TransformerConfig& config, World& world)
    : norm1(config.dim, world, {.eps = config.norm_eps, .dtype = config.dtype}),
      attn({.dim = config.dim,
            .heads = config.heads,
            .kv_heads = config.kv_heads,
            .rope_theta = config.rope_theta,
            .dtype = config.dtype,
            .init_std = config.init_std},
           world),
      norm2(config.dim, world, {.eps = config.norm_eps, .dtype = config.dtype}),
      mlp({.dim = config.dim,
           .ffn = config.ffn,
           .dtype = config.dtype,
           .init_std = config.init_std},
          world),
      drop(config.dropout) {
  register_module("norm1", norm1);
  register_module("attn", attn);
  register_module("norm2", norm2);
  register_module("mlp", mlp);
  register_module("drop", drop);
}

Task<Tensor> TransformerBlock::run(Tensor x) {
  Tensor h = co_await norm1.forward(x);
  h = co_await attn.forward(std::move(h));
  h = co_await drop.forward(std::move(h));
  if (h.in_flight()) {  // while the block is recomputed
    const Redistribution attended(h);
    h = co_await attended;
  }
  x = x + h;
  h = co_await norm2.forward(x);
  h = co_await mlp.forward(std::move(h));
  h = co_await drop.forward(std::move(h));
  if (h.in_flight()) {
    const Redistribution fed(h);
    h = co_await fed;
  }
  co_return x + h;
}

Transformer::Transformer(const TransformerConfig& config, World& world)
    : config(config),
      tok_embeddings(config.vocab, config.dim, world,
                     {.dtype = config.dtype, .init_std = config.init_std}),
      norm(config.dim, world, {.eps = config.norm_eps, .dtype = config.dtype}),
      output(config.dim, config.vocab, world,
             {.bias = false, .dtype = config.dtype, .init_std = config.init_std}) {
  CS_REQUIRE(config.layers > 0 && config.seq > 0,
             "Transformer: layers and seq must be positive, got ", config.layers, " and ",
             config.seq);
  register_module("tok_embeddings", tok_embeddings);
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.append(std::make_shared<TransformerBlock>(config, world));
  register_module("layers", layers);
  register_module("norm", norm);
  register_module("output", output);
}

Task<Tensor> Transformer::run(Tensor ids) {
  CS_REQUIRE(ids.ndim() == 2 && ids.size(1) <= config.seq, "Transformer: ids ", ids,
             " are not [batch, at most seq = ", config.seq, "]");
  Tensor x = co_await tok_embeddings.forward(std::move(ids));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Task<Tensor> block = layers[i].forward(std::move(x));
    x = co_await std::move(block);
  }
  x = co_await norm.forward(std::move(x));
  co_return co_await output.forward(wanted_columns(x));
}

ParallelPlan transformer_plan(bool sequence_parallel) {
  // Between the blocks activations are plain replicas, or DTensors sharded along the sequence.
  const Placement between = sequence_parallel ? Shard(1) : Replicate();
  const bool local = !sequence_parallel;
  const PrepareModuleInput gathered{.input_layouts = between, .desired_input_layouts = Replicate()};
  const ColwiseParallel colwise{};
  const RowwiseParallel rowwise{.output_layouts = between, .use_local_output = local};

  ParallelPlan plan;
  plan["tok_embeddings"] = RowwiseParallel{
      .input_layouts = Replicate(), .output_layouts = between, .use_local_output = local};
  plan["layers.*.attn"] = gathered;
  plan["layers.*.attn.w[qkv]"] = colwise;
  plan["layers.*.attn.wo"] = rowwise;
  plan["layers.*.mlp"] = gathered;
  plan["layers.*.mlp.w[13]"] = colwise;
  plan["layers.*.mlp.w2"] = rowwise;
  plan["output"] = ColwiseParallel{.input_layouts = between, .use_local_output = false};
  if (sequence_parallel) {
    plan["layers.*.norm[12]"] = SequenceParallel{};
    plan["norm"] = SequenceParallel{};
  }
  return plan;
}

}  // namespace coshard::nn
