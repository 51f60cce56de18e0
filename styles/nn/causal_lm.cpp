#include <coshard/styles/nn/causal_lm.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/styles/nn/kv_cache.h>
#include "styles/nn/together.h"
#include "styles/prepare.h"

namespace coshard::nn {
namespace {

LinearOptions projection(const CausalLMConfig& config, bool bias) {
  return {.bias = bias, .dtype = config.dtype, .init_std = config.initializer_range};
}

RMSNormOptions norm_options(const CausalLMConfig& config) {
  return {.eps = config.rms_norm_eps, .offset = config.norm_offset, .dtype = config.dtype};
}

// As a tensor of this dtype holds it; that of transformers begins in f32.
double rounded(double value, DType dtype) {
  const auto number = static_cast<float>(value);
  if (dtype == DType::BF16) return BFloat16(number);
  if (dtype == DType::F16) return Float16(number);
  return number;
}

Tensor gated(HiddenAct act, const Tensor& gate, const Tensor& up) {
  if (act == HiddenAct::Silu) return swiglu(gate, up);
  return gelu(gate, act == HiddenAct::GeluTanh) * up;
}

// Each rank has the weight, and its gradient of that rank's heads (RMSNorm).
struct NormOfOwnHeads {
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions&) const {
    module.claim("parallelized");
    for (const NamedParameter& p : module.named_parameters()) replicate_parameter(*p.slot, mesh);
  }
};

}  // namespace

// CausalLM passes a checked config down; a submodule constructed alone checks it here.
CausalLMAttention::CausalLMAttention(const CausalLMConfig& given, World& world, std::int64_t layer)
    : CausalLMAttention(Checked{checked(given)}, world, layer) {}

CausalLMAttention::CausalLMAttention(const Checked& made, World& world, std::int64_t layer)
    : q_proj(made.c.hidden_size, made.c.num_attention_heads * made.c.head_dim, world,
             projection(made.c, made.c.qkv_bias)),
      k_proj(made.c.hidden_size, made.c.num_key_value_heads * made.c.head_dim, world,
             projection(made.c, made.c.qkv_bias)),
      v_proj(made.c.hidden_size, made.c.num_key_value_heads * made.c.head_dim, world,
             projection(made.c, made.c.qkv_bias)),
      o_proj(made.c.num_attention_heads * made.c.head_dim, made.c.hidden_size, world,
             projection(made.c, made.c.o_bias)),
      config_(made.c),
      table_(rotary_table(made.c.rope, made.c.head_dim, made.c.max_position_embeddings, 0)),
      window_(slides(made.c, layer) ? made.c.sliding_window : 0) {
  const std::int64_t dim = config_.head_dim;
  q_proj.out_groups = o_proj.in_groups = {dim * heads_per_key(), dim};
  k_proj.out_groups = v_proj.out_groups = {dim, 0};
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
  if (!config_.qk_norm) return;
  register_module("q_norm", q_norm.emplace(config_.head_dim, world, norm_options(config_)));
  register_module("k_norm", k_norm.emplace(config_.head_dim, world, norm_options(config_)));
}

// [batch, seq, width] -> [batch, seq, local heads, head_dim]
Tensor CausalLMAttention::heads(const Tensor& projected) const {
  const std::int64_t dim = config_.head_dim;
  CS_REQUIRE(projected.ndim() == 3 && projected.size(2) % dim == 0,
             "CausalLMAttention: a projection is ", projected,
             ", not [batch, seq, a multiple of head_dim ", dim, "]");
  return view(projected, Shape{projected.size(0), projected.size(1), projected.size(2) / dim, dim});
}

// heads() with norm and positions, as [batch, local heads, seq, head_dim].
Task<Tensor> CausalLMAttention::placed(Tensor projected, RMSNorm* norm) {
  Tensor x = heads(projected);
  if (norm != nullptr) x = co_await norm->forward(std::move(x));
  const std::int64_t seq = sequences() == nullptr ? x.size(1) : sequences()->longest;
  const std::int64_t most = config_.max_position_embeddings;
  const bool longer = config_.rope.type == RopeType::Dynamic && seq > most;
  const RotaryTable table =
      longer ? rotary_table(config_.rope, config_.head_dim, most, seq) : table_;
  co_return transpose(place(x, table), 1, 2);
}

std::int64_t CausalLMAttention::heads_per_key() const {
  return config_.num_attention_heads / config_.num_key_value_heads;
}

// Of all heads of k or v, those that this rank's query heads see; else x as it is.
Tensor CausalLMAttention::seen(const Tensor& x, std::int64_t queries) const {
  const std::int64_t group = heads_per_key();
  if (queries == x.size(1) * group) return x;
  CS_REQUIRE(x.size(1) == config_.num_key_value_heads && q_proj.weight.is_distributed() &&
                 k_proj.weight.is_distributed(),
             "CausalLMAttention: ", queries, " query heads on this rank are not ", group,
             " times the ", x.size(1), " key heads");
  if (queries == 0) return narrow(x, 1, 0, 0);
  const std::int64_t first = q_proj.weight.spec()->offset[0] / config_.head_dim;
  const std::int64_t begin = first / group, end = (first + queries - 1) / group + 1;
  const Tensor own = narrow(x, 1, begin, end - begin);
  if (end - begin == 1 || queries == (end - begin) * group) return own;
  return narrow(repeat_interleave(own, group, 1), 1, first - begin * group, queries);
}

Task<Outputs> CausalLMAttention::run_all(Inputs inputs) {
  const Tensor x = inputs.get(0, "hidden_states");
  CS_REQUIRE(x.defined(), "CausalLMAttention: hidden_states is missing");
  CS_REQUIRE(config_.attention_dropout == 0 || !training(), "CausalLM: attention_dropout ",
             config_.attention_dropout,
             " is not supported in training; set it to 0 in the config, or call train(false)");
  Task<std::vector<Tensor>> all = forward_together(x, {&q_proj, &k_proj, &v_proj});
  std::vector<Tensor> made = co_await std::move(all);
  const Shape joined = made[0].shape();
  Task<Tensor> query = placed(std::move(made[0]), q_norm ? &*q_norm : nullptr);
  const Tensor q = co_await std::move(query);
  Task<Tensor> key = placed(std::move(made[1]), k_norm ? &*k_norm : nullptr);
  const Tensor k = co_await std::move(key);
  const Tensor v = transpose(heads(made[2]), 1, 2);
  made.clear();
  const Tensor keys = seen(k, q.size(1)), values = seen(v, q.size(1));
  const Tensor mixed = transpose(attend(q, keys, values, window_), 1, 2);
  Tensor out = view(mixed, joined);
  out = co_await o_proj.forward(std::move(out));
  Outputs outputs;
  outputs.push_back(std::move(out));
  co_return outputs;
}

CausalLMMLP::CausalLMMLP(const CausalLMConfig& config, World& world)
    : gate_proj(config.hidden_size, config.intermediate_size, world,
                projection(config, config.mlp_bias)),
      up_proj(config.hidden_size, config.intermediate_size, world,
              projection(config, config.mlp_bias)),
      down_proj(config.intermediate_size, config.hidden_size, world,
                projection(config, config.mlp_bias)),
      act_(config.hidden_act) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

Task<Tensor> CausalLMMLP::run(Tensor x) {
  Task<std::vector<Tensor>> both = forward_together(std::move(x), {&gate_proj, &up_proj});
  std::vector<Tensor> made = co_await std::move(both);
  Tensor hidden = gated(act_, made[0], made[1]);
  made.clear();
  co_return co_await down_proj.forward(std::move(hidden));
}

CausalLMLayer::CausalLMLayer(const CausalLMConfig& config, World& world, std::int64_t layer)
    : self_attn(config, world, layer),
      mlp(config, world),
      input_layernorm(config.hidden_size, world, norm_options(config)),
      post_attention_layernorm(config.hidden_size, world, norm_options(config)) {
  register_module("self_attn", self_attn);
  register_module("mlp", mlp);
  register_module("input_layernorm", input_layernorm);
  register_module("post_attention_layernorm", post_attention_layernorm);
}

Task<Tensor> CausalLMLayer::run(Tensor x) {
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

CausalLMModel::CausalLMModel(const CausalLMConfig& config, World& world)
    : embed_tokens(config.vocab_size, config.hidden_size, world,
                   {.padding_idx = config.pad_token_id,
                    .dtype = config.dtype,
                    .init_std = config.initializer_range}),
      norm(config.hidden_size, world, norm_options(config)),
      scale_(config.embedding_scale
                 ? rounded(std::sqrt(static_cast<double>(config.hidden_size)), config.dtype)
                 : 1) {
  register_module("embed_tokens", embed_tokens);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers.append(std::make_shared<CausalLMLayer>(config, world, i));
  register_module("layers", layers);
  register_module("norm", norm);
}

Task<Tensor> CausalLMModel::run(Tensor ids) {
  CS_REQUIRE(ids.ndim() == 2, "CausalLM: ids ", ids, " are not [batch, seq]");
  Tensor x = co_await embed_tokens.forward(std::move(ids));
  if (scale_ != 1) x = x * scale_;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Task<Tensor> layer = layers[i].forward(std::move(x));
    x = co_await std::move(layer);
  }
  co_return co_await norm.forward(std::move(x));
}

CausalLM::CausalLM(const CausalLMConfig& config, World& world)
    : config(checked(config)),
      model(this->config, world),
      lm_head(config.hidden_size, config.vocab_size, world, projection(config, false)) {
  register_module("model", model);
  register_module("lm_head", lm_head);
  if (config.tie_word_embeddings) lm_head.weight = model.embed_tokens.weight;
}

std::vector<std::shared_ptr<Module>> CausalLM::blocks() const {
  return {model.layers.begin(), model.layers.end()};
}

std::vector<std::string> CausalLM::unused_names() const { return {".rotary_emb.inv_freq"}; }

Task<Tensor> CausalLM::run(Tensor ids) {
  Tensor x = co_await model.forward(std::move(ids));
  co_return co_await lm_head.forward(wanted_columns(x));
}

ParallelPlan causal_lm_plan(bool sequence_parallel, bool qk_norm) {
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
  if (qk_norm) plan["model.layers.*.self_attn.[qk]_norm"] = NormOfOwnHeads{};
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
