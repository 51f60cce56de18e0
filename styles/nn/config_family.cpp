#include "styles/nn/config_family.h"

#include <algorithm>
#include <string_view>

#include <coshard/runtime/error.h>

namespace coshard::nn {
namespace {

using Window = ConfigFamily::Window;
constexpr ConfigFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .attention_bias = true,
     .mlp_bias = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .intermediate_size = 14336,
     .key_value_heads = 8,
     .max_position_embeddings = 131072,
     .window = Window::All},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .vocab_size = 151936,
     .intermediate_size = 22016,
     .key_value_heads = 32,
     .max_position_embeddings = 32768,
     .qkv_bias = true,
     .window = Window::ByLayer},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .vocab_size = 151936,
     .intermediate_size = 22016,
     .key_value_heads = 32,
     .head_dim = 128,
     .max_position_embeddings = 32768,
     .attention_bias = true,
     .qk_norm = true,
     .window = Window::ByLayer},
    {.model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .vocab_size = 256000,
     .hidden_size = 3072,
     .intermediate_size = 24576,
     .num_hidden_layers = 28,
     .num_attention_heads = 16,
     .key_value_heads = 16,
     .head_dim = 256,
     .max_position_embeddings = 8192,
     .pad_token_id = 0,
     .tie_word_embeddings = true,
     .attention_bias = true,
     .gemma = true},
};

// Of how a file came to be, of generation, of other heads than that of a language model.
constexpr std::string_view kInert[] = {"_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_commit_hash",
                                       "_model_name_or_path",
                                       "_name_or_path",
                                       "attn_implementation",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "cls_token_id",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "is_llama_config",
                                       "keys_to_ignore_at_inference",
                                       "label2id",
                                       "length_penalty",
                                       "loss_type",
                                       "mask_token_id",
                                       "max_length",
                                       "max_new_tokens",
                                       "max_sequence_length",
                                       "min_length",
                                       "name_or_path",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_labels",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_scores",
                                       "prefix",
                                       "pretraining_tp",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torchscript",
                                       "transformers.js_config",
                                       "transformers_version",
                                       "typical_p",
                                       "unk_token_id",
                                       "unsloth_fixed",
                                       "unsloth_version",
                                       "use_bfloat16",
                                       "use_return_dict",
                                       "use_cache"};

// Inert with this value, refused with any other but null.
struct InertValue {
  std::string_view key, value;
};
constexpr InertValue kInertValues[] = {
    {"add_cross_attention", "false"},
    {"attention_bias", "false"},
    {"chunk_size_feed_forward", "0"},
    {"cross_attention_hidden_size", "null"},
    {"is_decoder", "false"},
    {"is_encoder_decoder", "false"},
    {"mlp_bias", "false"},
    {"partial_rotary_factor", "1.0"},
    {"pruned_heads", "{}"},
    {"rope_interleaved", "false"},
    {"tie_encoder_decoder", "false"},
    {"use_bidirectional_attention", "false"},
    {"use_mrope", "false"},
    {"use_qk_norm", "false"},
    {"use_sliding_window", "false"},
};

constexpr std::string_view kRefused[] = {"attention_multiplier",
                                         "attn_logit_softcapping",
                                         "auto_map",
                                         "clip_qkv",
                                         "compression_config",
                                         "embedding_multiplier",
                                         "final_logit_softcapping",
                                         "layer_types",
                                         "logits_scaling",
                                         "max_window_layers",
                                         "no_rope_layers",
                                         "num_experts",
                                         "num_experts_per_tok",
                                         "num_local_experts",
                                         "original_max_position_embeddings",
                                         "per_layer_config",
                                         "quantization_config",
                                         "query_pre_attn_scalar",
                                         "residual_multiplier",
                                         "sliding_window",
                                         "tie_last_hidden_states"};

template <std::size_t N>
bool lists(const std::string_view (&names)[N], std::string_view key) {
  return std::ranges::find(names, key) != std::end(names);
}

}  // namespace

const ConfigFamily* find_family(const std::string& model_type) {
  for (const ConfigFamily& family : kFamilies)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const ConfigFamily& family : kFamilies)
    names += str_cat(names.empty() ? "" : ", ", family.model_type);
  return names;
}

KeyEffect effect_of(const std::string& key, const ConfigJson& value, bool biased) {
  if (lists(kInert, key)) return KeyEffect::None;
  for (const InertValue& inert : kInertValues) {
    if (key != inert.key) continue;
    const bool same =
        value == ConfigJson::parse(inert.value) && !(biased && key == "attention_bias");
    return same || value.is_null() ? KeyEffect::None : KeyEffect::Refused;
  }
  if (!lists(kRefused, key)) return KeyEffect::Unknown;
  return value.is_null() ? KeyEffect::None : KeyEffect::Refused;
}

}  // namespace coshard::nn
