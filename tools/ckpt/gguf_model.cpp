#include "tools/ckpt/gguf_model.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/strict_json.h"

namespace coshard::tools {
namespace {

// Reads the keys of one architecture, and refuses those that nobody has asked for.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const Gguf& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::int64_t size(const char* key, std::optional<std::int64_t> otherwise = std::nullopt) {
    const std::optional<std::int64_t> found = file_.integer(asked(key));
    const std::int64_t value = found.value_or(otherwise.value_or(0));
    CS_REQUIRE(value > 0 && value < std::int64_t{1} << 31, file_.path(), ": ", prefix_, key, " ",
               found ? std::to_string(value) : "absent", " is no size");
    return value;
  }
  // The decimal number with the fewest digits that gives this f32: 1e-05. It is above 0.
  double number(const char* key, std::optional<float> otherwise = std::nullopt) {
    const std::optional<float> found = file_.single(asked(key));
    CS_REQUIRE(found || otherwise, file_.path(), ": ", prefix_, key, " is missing");
    const float value = found.value_or(otherwise.value_or(0));
    CS_REQUIRE(std::isfinite(value) && value > 0, file_.path(), ": ", prefix_, key, " ", value,
               " is not a number above 0");
    return std::stod(fmt::format("{}", value));
  }
  void require_text(const char* key, std::string_view only) {
    const std::string value = file_.text(asked(key)).value_or(std::string(only));
    CS_REQUIRE(value == only, file_.path(), ": ", prefix_, key, " ", shortened(value),
               " is not supported");
  }
  void finish() const {
    for (const std::string& key : file_.keys(prefix_))
      CS_REQUIRE(std::ranges::find(asked_, key) != asked_.end(), file_.path(), ": ", shortened(key),
                 " is not supported");
  }

 private:
  const std::string& asked(const char* key) { return asked_.emplace_back(prefix_ + key); }
  const Gguf& file_;
  std::string prefix_;
  std::vector<std::string> asked_;
};

using Shape = std::vector<std::uint64_t>;
struct Wanted {
  std::string name;  // in the folder
  Shape shape;
  std::int64_t pairs_of_heads = 0;
};
using WantedTensors = std::map<std::string, Wanted>;  // by name in the file

std::uint64_t unsigned_of(std::int64_t size) { return static_cast<std::uint64_t>(size); }

void add_layer(WantedTensors& wanted, const nn::CausalLMConfig& c, std::int64_t layer) {
  const auto hidden = unsigned_of(c.hidden_size), inner = unsigned_of(c.intermediate_size);
  const auto queries = unsigned_of(c.num_attention_heads * c.head_dim);
  const auto keys = unsigned_of(c.num_key_value_heads * c.head_dim);
  const bool in_pairs = c.model_type == "llama";
  const auto add = [&](const char* in_file, const char* name, Shape shape, std::int64_t heads = 0) {
    const std::string prefix = str_cat("model.layers.", layer, ".");
    wanted[str_cat("blk.", layer, ".", in_file)] = {prefix + name, std::move(shape),
                                                    in_pairs ? heads : 0};
  };
  add("attn_norm.weight", "input_layernorm.weight", {hidden});
  add("attn_q.weight", "self_attn.q_proj.weight", {queries, hidden}, c.num_attention_heads);
  add("attn_k.weight", "self_attn.k_proj.weight", {keys, hidden}, c.num_key_value_heads);
  add("attn_v.weight", "self_attn.v_proj.weight", {keys, hidden});
  add("attn_output.weight", "self_attn.o_proj.weight", {hidden, queries});
  add("ffn_norm.weight", "post_attention_layernorm.weight", {hidden});
  add("ffn_gate.weight", "mlp.gate_proj.weight", {inner, hidden});
  add("ffn_up.weight", "mlp.up_proj.weight", {inner, hidden});
  add("ffn_down.weight", "mlp.down_proj.weight", {hidden, inner});
  if (!c.qkv_bias) return;
  add("attn_q.bias", "self_attn.q_proj.bias", {queries});
  add("attn_k.bias", "self_attn.k_proj.bias", {keys});
  add("attn_v.bias", "self_attn.v_proj.bias", {keys});
}

WantedTensors tensors_of(const nn::CausalLMConfig& config) {
  const auto hidden = unsigned_of(config.hidden_size), vocab = unsigned_of(config.vocab_size);
  WantedTensors wanted{{"token_embd.weight", {"model.embed_tokens.weight", {vocab, hidden}}},
                       {"output_norm.weight", {"model.norm.weight", {hidden}}}};
  if (!config.tie_word_embeddings) wanted["output.weight"] = {"lm_head.weight", {vocab, hidden}};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(wanted, config, layer);
  return wanted;
}

const GgufTensor* find_tensor(const Gguf& file, std::string_view name) {
  const auto at = std::ranges::find(file.tensors(), name, &GgufTensor::name);
  return at == file.tensors().end() ? nullptr : &*at;
}

nn::CausalLMConfig config_of(const Gguf& file) {
  const std::string architecture = file.text("general.architecture").value_or("absent");
  CS_REQUIRE(architecture == "llama" || architecture == "qwen2", file.path(),
             ": general.architecture ", shortened(architecture), " is none of llama and qwen2");
  CS_REQUIRE(file.integer("split.count").value_or(1) <= 1, file.path(),
             ": is one part of several (split.count); merge them first");
  ArchitectureKeys keys(file, architecture);
  nn::CausalLMConfig c{.model_type = architecture};
  c.num_hidden_layers = keys.size("block_count");
  c.max_position_embeddings = keys.size("context_length");
  c.hidden_size = keys.size("embedding_length");
  c.intermediate_size = keys.size("feed_forward_length");
  c.num_attention_heads = keys.size("attention.head_count");
  c.num_key_value_heads = keys.size("attention.head_count_kv", c.num_attention_heads);
  c.head_dim = keys.size("attention.key_length",
                         std::max<std::int64_t>(c.hidden_size / c.num_attention_heads, 1));
  for (const char* key : {"attention.value_length", "rope.dimension_count"})
    CS_REQUIRE(keys.size(key, c.head_dim) == c.head_dim, file.path(), ": ", architecture, ".", key,
               " is not the size of a head, ", c.head_dim);
  c.rms_norm_eps = keys.number("attention.layer_norm_rms_epsilon");
  c.rope.theta = keys.number("rope.freq_base", 10000.0F);
  keys.require_text("rope.scaling.type", "none");
  c.qkv_bias = architecture == "qwen2";
  c.tie_word_embeddings = find_tensor(file, "output.weight") == nullptr;
  const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
  CS_REQUIRE(embedding != nullptr && embedding->shape.size() == 2, file.path(),
             ": has no tensor 'token_embd.weight' of two dimensions");
  c.vocab_size = static_cast<std::int64_t>(embedding->shape[0]);
  CS_REQUIRE(keys.size("vocab_size", c.vocab_size) == c.vocab_size, file.path(), ": ", architecture,
             ".vocab_size is not that of token_embd.weight, ", c.vocab_size);
  keys.finish();
  // Tensors that are listed below are as many as there are in the file.
  CS_REQUIRE(c.num_hidden_layers <= std::ssize(file.tensors()), file.path(), ": has ",
             file.tensors().size(), " tensors for ", c.num_hidden_layers, " layers");
  try {
    return nn::checked(c);
  } catch (const Error& error) {
    fail(error.kind(), str_cat(file.path(), ": ", error.message()));
  }
}

}  // namespace

GgufModel GgufModel::of(const Gguf& file) {
  GgufModel model{config_of(file), {}};
  WantedTensors wanted = tensors_of(model.config);
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    const auto at = wanted.find(tensor.name);
    CS_REQUIRE(at != wanted.end(), file.path(), ": tensor '", shortened(tensor.name),
               "' has no place in a ", model.config.model_type,
               " model; convert from its Hugging Face folder if there is one");
    CS_REQUIRE(tensor.shape == at->second.shape, file.path(), ": tensor '", tensor.name, "' is ",
               sizes_text(tensor.shape), ", where the numbers say ", sizes_text(at->second.shape));
    model.tensors.push_back({at->second.name, i, at->second.pairs_of_heads});
    wanted.erase(at);
  }
  std::vector<std::string_view> missing;
  for (const auto& [name, tensor] : wanted) missing.push_back(name);
  CS_REQUIRE(missing.empty(), file.path(), ": has no tensor ", names_text(missing));
  return model;
}

}  // namespace coshard::tools
