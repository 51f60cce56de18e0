#include <coshard/styles/nn/gpt2.h>

#include <cmath>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/styles/nn/kv_cache.h>

namespace coshard::nn {
namespace {

constexpr int kQueryKeyValue = 3;

Conv1DOptions columns_of(const GPT2Config& c) {
  return {.dtype = c.dtype, .init_std = c.initializer_range};
}

// What adds to the residual stream begins smaller, the deeper the model is.
Conv1DOptions rows_of(const GPT2Config& c) {
  const auto additions = static_cast<double>(2 * c.n_layer);
  return {.dtype = c.dtype, .init_std = c.initializer_range / std::sqrt(additions)};
}

FeatureGroups heads_of(const GPT2Config& c) {
  const std::int64_t head_dim = c.n_embd / c.n_head;
  return {head_dim, head_dim};
}

Conv1DOptions heads_by_columns(const GPT2Config& c) {
  Conv1DOptions options = columns_of(c);
  options.parts = kQueryKeyValue;
  options.out_groups = heads_of(c);
  return options;
}

Conv1DOptions heads_by_rows(const GPT2Config& c) {
  Conv1DOptions options = rows_of(c);
  options.in_groups = heads_of(c);
  return options;
}

LayerNormOptions layer_norm_of(const GPT2Config& c) {
  return {.eps = c.layer_norm_epsilon, .dtype = c.dtype};
}

EmbeddingOptions embedding_of(const GPT2Config& c) {
  return {.dtype = c.dtype, .init_std = c.initializer_range};
}

double scale_of(const GPT2Config& c, std::int64_t layer) {
  const double scale =
      c.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(c.n_embd / c.n_head)) : 1;
  return c.scale_attn_by_inverse_layer_idx ? scale / static_cast<double>(layer + 1) : scale;
}

}  // namespace

GPT2Attention::GPT2Attention(const GPT2Config& config, World& world, std::int64_t layer)
    : c_attn(config.n_embd, kQueryKeyValue * config.n_embd, world, heads_by_columns(config)),
      c_proj(config.n_embd, config.n_embd, world, heads_by_rows(config)),
      resid_dropout(config.resid_pdrop),
      head_dim_(config.n_embd / config.n_head),
      attn_pdrop_(config.attn_pdrop),
      scale_(scale_of(config, layer)) {
  register_module("c_attn", c_attn);
  register_module("c_proj", c_proj);
  register_module("resid_dropout", resid_dropout);
}

Task<Tensor> GPT2Attention::run(Tensor x) {
  CS_REQUIRE(attn_pdrop_ == 0 || !training(), "GPT2: attn_pdrop ", attn_pdrop_,
             " is not supported in training; set it to 0 in the config, or ignore it in "
             "open_model, or call train(false)");
  const Tensor all = co_await c_attn.forward(std::move(x));
  const std::int64_t width = all.size(2) / kQueryKeyValue;
  CS_REQUIRE(width % head_dim_ == 0, "GPT2Attention: c_attn gave ", all,
             ", not [batch, seq, 3 x a multiple of ", head_dim_, "]");
  const Shape split{all.size(0), all.size(1), width / head_dim_, head_dim_};
  std::array<Tensor, kQueryKeyValue> heads;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Tensor part = narrow(all, 2, static_cast<std::int64_t>(i) * width, width);
    heads[i] = transpose(view(part, split), 1, 2);
  }
  const Tensor mixed = transpose(attend(heads[0], heads[1], heads[2], 0, scale_), 1, 2);
  Tensor joined = view(mixed, Shape{all.size(0), all.size(1), width});
  joined = co_await c_proj.forward(std::move(joined));
  co_return co_await resid_dropout.forward(std::move(joined));
}

GPT2MLP::GPT2MLP(const GPT2Config& config, World& world)
    : c_fc(config.n_embd, checked(config).n_inner, world, columns_of(config)),
      c_proj(checked(config).n_inner, config.n_embd, world, rows_of(config)),
      dropout(config.resid_pdrop),
      act_(config.activation_function) {
  register_module("c_fc", c_fc);
  register_module("c_proj", c_proj);
  register_module("dropout", dropout);
}

Task<Tensor> GPT2MLP::run(Tensor x) {
  x = co_await c_fc.forward(std::move(x));
  x = act_ == HiddenAct::Silu ? silu(x) : gelu(x, act_ == HiddenAct::GeluTanh);
  x = co_await c_proj.forward(std::move(x));
  co_return co_await dropout.forward(std::move(x));
}

GPT2Block::GPT2Block(const GPT2Config& config, World& world, std::int64_t layer)
    : ln_1(config.n_embd, world, layer_norm_of(config)),
      attn(config, world, layer),
      ln_2(config.n_embd, world, layer_norm_of(config)),
      mlp(config, world) {
  register_module("ln_1", ln_1);
  register_module("attn", attn);
  register_module("ln_2", ln_2);
  register_module("mlp", mlp);
}

Task<Tensor> GPT2Block::run(Tensor x) {
  Tensor h = co_await ln_1.forward(x);
  h = co_await attn.forward(std::move(h));
  if (h.in_flight()) {  // while the block is recomputed
    const Redistribution attended(h);
    h = co_await attended;
  }
  x = x + h;
  h = co_await ln_2.forward(x);
  h = co_await mlp.forward(std::move(h));
  if (h.in_flight()) {
    const Redistribution fed(h);
    h = co_await fed;
  }
  co_return x + h;
}

GPT2Model::GPT2Model(const GPT2Config& config, World& world)
    : wte(config.vocab_size, config.n_embd, world, embedding_of(config)),
      wpe(config.n_positions, config.n_embd, world, embedding_of(config)),
      drop(config.embd_pdrop),
      ln_f(config.n_embd, world, layer_norm_of(config)) {
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("drop", drop);
  for (std::int64_t i = 0; i < config.n_layer; ++i)
    h.append(std::make_shared<GPT2Block>(config, world, i));
  register_module("h", h);
  register_module("ln_f", ln_f);
}

Task<Tensor> GPT2Model::run(Tensor ids) {
  CS_REQUIRE(ids.ndim() == 2 && ids.size(1) <= wpe.num, "GPT2: ids ", ids,
             " are not [batch, at most n_positions ", wpe.num, "]");
  const bool given = sequences() != nullptr;
  Tensor positions = given ? sequences()->positions : arange(ids.device(), ids.size(1));
  positions = co_await wpe.forward(std::move(positions));
  Tensor x = co_await wte.forward(std::move(ids));
  x = co_await drop.forward(x + positions);
  for (std::size_t i = 0; i < h.size(); ++i) {
    Task<Tensor> block = h[i].forward(std::move(x));
    x = co_await std::move(block);
  }
  co_return co_await ln_f.forward(std::move(x));
}

GPT2::GPT2(const GPT2Config& given, World& world)
    : config(checked(given)),
      transformer(config, world),
      lm_head(config.n_embd, config.vocab_size, world,
              {.bias = false, .dtype = config.dtype, .init_std = config.initializer_range}) {
  register_module("transformer", transformer);
  register_module("lm_head", lm_head);
  if (config.tie_word_embeddings) lm_head.weight = transformer.wte.weight;
}

// Masks of older files.
std::vector<std::string> GPT2::unused_names() const { return {".attn.bias", ".attn.masked_bias"}; }

std::vector<std::shared_ptr<Module>> GPT2::blocks() const {
  return {transformer.h.begin(), transformer.h.end()};
}

Task<Tensor> GPT2::run(Tensor ids) {
  Tensor x = co_await transformer.forward(std::move(ids));
  co_return co_await lm_head.forward(wanted_columns(x));
}

ParallelPlan gpt2_plan(bool sequence_parallel) {
  const Placement between = sequence_parallel ? Shard(1) : Replicate();
  const bool local = !sequence_parallel;
  const PrepareModuleInput gathered{.input_layouts = between, .desired_input_layouts = Replicate()};
  const RowwiseParallel rows{.output_layouts = between, .use_local_output = local};
  ParallelPlan plan;
  plan["transformer.wte"] = RowwiseParallel{
      .input_layouts = Replicate(), .output_layouts = between, .use_local_output = local};
  plan["transformer.wpe"] = NoParallel{.use_local_output = local};
  plan["transformer.h.*.attn"] = gathered;
  plan["transformer.h.*.attn.c_attn"] =
      ColwiseParallel{.output_layouts = StridedShard(-1, kQueryKeyValue)};
  plan["transformer.h.*.attn.c_proj"] = rows;
  plan["transformer.h.*.mlp"] = gathered;
  plan["transformer.h.*.mlp.c_fc"] = ColwiseParallel{};
  plan["transformer.h.*.mlp.c_proj"] = rows;
  plan["lm_head"] = ColwiseParallel{.input_layouts = between, .use_local_output = false};
  if (!sequence_parallel) return plan;
  plan["transformer.h.*.ln_[12]"] = SequenceParallel{};
  plan["transformer.ln_f"] = SequenceParallel{};
  return plan;
}

}  // namespace coshard::nn
