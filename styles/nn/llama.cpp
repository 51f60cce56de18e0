#include <coshard/styles/nn/llama.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "styles/nn/together.h"

namespace coshard::nn {
namespace {

std::int64_t key_heads(const LlamaConfig& c) {
  return c.num_key_value_heads ? c.num_key_value_heads : c.num_attention_heads;
}

LlamaConfig checked_llama(LlamaConfig c) {
  c.num_key_value_heads = key_heads(c);
  CS_REQUIRE(c.num_attention_heads > 0 && c.num_key_value_heads > 0 &&
                 c.num_attention_heads % c.num_key_value_heads == 0,
             "Llama: num_attention_heads ", c.num_attention_heads,
             " is not a multiple of num_key_value_heads ", c.num_key_value_heads);
  if (c.head_dim == 0) {
    CS_REQUIRE(c.hidden_size % c.num_attention_heads == 0, "Llama: hidden_size ", c.hidden_size,
               " is not divisible by num_attention_heads ", c.num_attention_heads);
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  CS_REQUIRE(c.head_dim > 0 && c.head_dim % 2 == 0, "Llama: head_dim ", c.head_dim,
             " must be even and positive for rotary positions");
  return c;
}

LinearOptions llama_linear(const LlamaConfig& config, bool bias) {
  return {.bias = bias, .dtype = config.dtype, .init_std = config.initializer_range};
}

RMSNormOptions llama_norm(const LlamaConfig& config) {
  return {.eps = config.rms_norm_eps, .dtype = config.dtype};
}

}  // namespace

// LlamaForCausalLM passes a checked config down; a submodule constructed alone checks it here.
LlamaAttention::LlamaAttention(const LlamaConfig& config, World& world)
    : q_proj(config.hidden_size, config.num_attention_heads * checked_llama(config).head_dim, world,
             llama_linear(config, config.attention_bias)),
      k_proj(config.hidden_size, key_heads(config) * checked_llama(config).head_dim, world,
             llama_linear(config, config.attention_bias)),
      v_proj(config.hidden_size, key_heads(config) * checked_llama(config).head_dim, world,
             llama_linear(config, config.attention_bias)),
      o_proj(config.num_attention_heads * checked_llama(config).head_dim, config.hidden_size, world,
             llama_linear(config, config.attention_bias)),
      head_dim_(checked_llama(config).head_dim),
      group_(config.num_attention_heads / key_heads(config)),
      rope_theta_(config.rope_theta) {
  q_proj.group = k_proj.group = v_proj.group = head_dim_;
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
}

// [batch, seq, width] -> [batch, local heads, seq, head_dim]
Tensor LlamaAttention::heads(const Tensor& projected, bool rotate) const {
  CS_REQUIRE(projected.ndim() == 3 && projected.size(2) % head_dim_ == 0,
             "LlamaAttention: a projection is ", projected,
             ", not [batch, seq, a multiple of head_dim ", head_dim_, "]");
  const Shape split{projected.size(0), projected.size(1), projected.size(2) / head_dim_, head_dim_};
  Tensor x = view(projected, split);
  if (rotate) x = rotary_embedding(x, rope_theta_);
  return transpose(x, 1, 2);
}

Task<Outputs> LlamaAttention::run_all(Inputs inputs) {
  const Tensor x = inputs.get(0, "hidden_states");
  CS_REQUIRE(x.defined(), "LlamaAttention: hidden_states is missing");
  Task<std::vector<Tensor>> all = forward_together(x, {&q_proj, &k_proj, &v_proj});
  std::vector<Tensor> made = co_await std::move(all);
  Tensor q = std::move(made[0]), k = std::move(made[1]), v = std::move(made[2]);
  const Shape joined = q.shape();
  q = heads(q, true);
  k = heads(k, true);
  v = heads(v, false);
  CS_REQUIRE(q.size(1) == k.size(1) * group_, "LlamaAttention: ", q.size(1),
             " query heads on this rank are not ", group_, " times the ", k.size(1), " key heads");
  const Tensor mixed = transpose(attention(q, k, v), 1, 2);
  Tensor out = view(mixed, joined);
  out = co_await o_proj.forward(std::move(out));
  Outputs outputs;
  outputs.push_back(std::move(out));
  co_return outputs;
}

LlamaMLP::LlamaMLP(const LlamaConfig& config, World& world)
    : gate_proj(config.hidden_size, config.intermediate_size, world,
                llama_linear(config, config.mlp_bias)),
      up_proj(config.hidden_size, config.intermediate_size, world,
              llama_linear(config, config.mlp_bias)),
      down_proj(config.intermediate_size, config.hidden_size, world,
                llama_linear(config, config.mlp_bias)) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

Task<Tensor> LlamaMLP::run(Tensor x) {
  Task<std::vector<Tensor>> both = forward_together(std::move(x), {&gate_proj, &up_proj});
  std::vector<Tensor> made = co_await std::move(both);
  Tensor hidden = swiglu(made[0], made[1]);
  made.clear();
  co_return co_await down_proj.forward(std::move(hidden));
}

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaConfig& config, World& world)
    : self_attn(config, world),
      mlp(config, world),
      input_layernorm(config.hidden_size, world, llama_norm(config)),
      post_attention_layernorm(config.hidden_size, world, llama_norm(config)) {
  register_module("self_attn", self_attn);
  register_module("mlp", mlp);
  register_module("input_layernorm", input_layernorm);
  register_module("post_attention_layernorm", post_attention_layernorm);
}

Task<Tensor> LlamaDecoderLayer::run(Tensor x) {
  Tensor h = co_await input_layernorm.forward(x);
  Inputs inputs;
  inputs.keyword("hidden_states", std::move(h));
  Task<Tensor> attended = self_attn.forward(std::move(inputs));
  h = co_await std::move(attended);
  if (h.in_flight()) {  // while the layer is recomputed
    const Redistribution joined(h);
    h = co_await joined;
  }
  x = x + h;
  h = co_await post_attention_layernorm.forward(x);
  h = co_await mlp.forward(std::move(h));
  if (h.in_flight()) {
    const Redistribution fed(h);
    h = co_await fed;
  }
  co_return x + h;
}

LlamaModel::LlamaModel(const LlamaConfig& config, World& world)
    : embed_tokens(config.vocab_size, config.hidden_size, world,
                   {.dtype = config.dtype, .init_std = config.initializer_range}),
      norm(config.hidden_size, world, llama_norm(config)) {
  register_module("embed_tokens", embed_tokens);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers.append(std::make_shared<LlamaDecoderLayer>(config, world));
  register_module("layers", layers);
  register_module("norm", norm);
}

Task<Tensor> LlamaModel::run(Tensor ids) {
  CS_REQUIRE(ids.ndim() == 2, "Llama: ids ", ids, " are not [batch, seq]");
  Tensor x = co_await embed_tokens.forward(std::move(ids));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Task<Tensor> layer = layers[i].forward(std::move(x));
    x = co_await std::move(layer);
  }
  co_return co_await norm.forward(std::move(x));
}

LlamaForCausalLM::LlamaForCausalLM(const LlamaConfig& config, World& world)
    : config(checked_llama(config)),
      model(this->config, world),
      lm_head(config.hidden_size, config.vocab_size, world, llama_linear(config, false)) {
  register_module("model", model);
  register_module("lm_head", lm_head);
  if (config.tie_word_embeddings) lm_head.weight = model.embed_tokens.weight;
}

Task<Tensor> LlamaForCausalLM::run(Tensor ids) {
  Tensor x = co_await model.forward(std::move(ids));
  co_return co_await lm_head.forward(std::move(x));
}

ParallelPlan llama_plan(bool sequence_parallel) {
  const Placement between = sequence_parallel ? Shard(1) : Replicate();
  const bool local = !sequence_parallel;
  const ColwiseParallel columns{};
  const RowwiseParallel rows{.output_layouts = between, .use_local_output = local};
  ParallelPlan plan;
  plan["model.embed_tokens"] = RowwiseParallel{
      .input_layouts = Replicate(), .output_layouts = between, .use_local_output = local};
  plan["model.layers.*.self_attn.[qkv]_proj"] = columns;
  plan["model.layers.*.self_attn.o_proj"] = rows;
  plan["model.layers.*.mlp.gate_proj"] = columns;
  plan["model.layers.*.mlp.up_proj"] = columns;
  plan["model.layers.*.mlp.down_proj"] = rows;
  plan["lm_head"] = ColwiseParallel{.input_layouts = between, .use_local_output = false};
  plan["model.layers.*.self_attn"] =
      PrepareModuleInput{.input_kwarg_layouts = {{"hidden_states", between}},
                         .desired_input_kwarg_layouts = {{"hidden_states", Replicate()}}};
  plan["model.layers.*.mlp"] =
      PrepareModuleInput{.input_layouts = between, .desired_input_layouts = Replicate()};
  if (!sequence_parallel) return plan;
  plan["model.layers.*.*_layernorm"] = SequenceParallel{};
  plan["model.norm"] = SequenceParallel{};
  return plan;
}

}  // namespace coshard::nn
